#include "kube/one_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "utf8.h"

namespace adaptdl::kube {

std::string one_line(std::string_view text, std::size_t most) {
  std::string line;
  for (const char c : text.substr(0, most)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (!control && c != ' ')
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  // Without what is no UTF-8, or half a character at the cut.
  using nlohmann::json;
  return json::parse(json(line).dump(-1, ' ', false, json::error_handler_t::ignore)).get<std::string>();
}

void check_text(std::string_view text, const std::string& name) {
  if (is_utf8(text) && text.find('\0') == std::string_view::npos) return;
  throw Error(one_line(fmt::format("{}: this is no text in UTF-8; save it in that encoding", name)));
}

}  // namespace adaptdl::kube
