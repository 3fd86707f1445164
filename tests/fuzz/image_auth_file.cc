// Reads any bytes as a file of registry credentials and as a manifest: they are parsed, or refused with a one-line
// error.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "image/registry/auth_file.h"
#include "image/registry/manifest.h"

using namespace adaptdl::image;

namespace {

template <class Call>
void refused_in_a_line(Call call) {
  try {
    call();
  } catch (const adaptdl::Error& error) {
    const std::string_view message = error.what();
    if (std::any_of(message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; })) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  refused_in_a_line([&] {
    const AuthFile file = parse_auth_file(text, "config.json");
    for (const auto& [key, credentials] : file.auths)
      if (!credentials.empty() && !find_auth(file, normal_key(key), "")) std::abort();
    find_auth(file, "docker.io", "library/busybox");
    find_helper(file, "docker.io");
  });
  refused_in_a_line([&] {
    auto found = parse_manifest(text, "");
    if (const auto* const index = std::get_if<Index>(&found)) choose(*index, Platform::of_this_machine());
  });
  return 0;
}
