#include "kube/api/check_text.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace adaptdl::kube {

void check_text(std::string_view text, const std::string& name) {
  if (is_utf8(text) && text.find('\0') == std::string_view::npos) return;
  throw Error(one_line(fmt::format("{}: not valid UTF-8 text; save it as UTF-8", name)));
}

}  // namespace adaptdl::kube
