// Reads any bytes as an error of an API server and as the output of a credential plugin: the results can be printed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/api/credential_plugin.h"
#include "kube/api/error.h"

using namespace adaptdl::kube;

namespace {

void require_line(const std::string& text) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) std::abort();
  const std::string as_json = nlohmann::json(text).dump();  // throws if it is not valid UTF-8
  if (as_json.size() < text.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Status status = parse_status(400 + static_cast<int>(size % 200), text);
  if (status.message.empty()) std::abort();
  require_line(status.message);
  require_line(status.reason);
  if (status.details.dump().size() > 10 * size + 10) std::abort();
  if (status.retry_after && (status.retry_after->count() <= 0 || status.retry_after->count() > 3600)) std::abort();
  try {
    const PluginAnswer answer = parse_plugin_answer(text, "client.authentication.k8s.io/v1");
    if (answer.token.empty() && answer.key.empty()) std::abort();
  } catch (const adaptdl::Error& error) {
    require_line(error.what());
  }
  return 0;
}
