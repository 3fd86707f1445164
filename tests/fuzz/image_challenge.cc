// Reads any bytes as challenges, tokens and errors from a registry or token server. An error message must be one line.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "image/registry/authorizer.h"
#include "image/registry/challenge.h"
#include "image/registry/registry_error.h"

using namespace adaptdl::image;

namespace {

bool is_line(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::size_t total = 0;
  for (const Challenge& each : parse_challenges(text)) {
    if (each.scheme.empty()) std::abort();
    total += each.scheme.size();
    for (const auto& [name, value] : each.parameters) total += name.size() + value.size();
  }
  if (total > size) std::abort();
  if (const auto answer = parse_token(text))
    if (answer->token.empty() || answer->token.find_first_of(" \r\n") != std::string::npos) std::abort();
  const auto error = refusal_error("cannot push", "r", {static_cast<int>(400 + size % 200), text, {}, {}}, "");
  if (!is_line(error.what())) std::abort();
  return 0;
}
