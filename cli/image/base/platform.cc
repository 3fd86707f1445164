#include "image/base/platform.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>

#include "adaptdl/error.h"
#include "base/text_parts.h"

namespace adaptdl::image {
namespace {

constexpr std::array<std::string_view, 12> kArchitectures{
    "386", "amd64", "arm", "arm64", "loong64", "mips64", "mips64le", "ppc64le", "ppc64", "riscv64", "s390x", "wasm"};

void normalize(Platform& platform) {
  std::string& architecture = platform.architecture;
  std::string& variant = platform.variant;
  if (architecture == "x86_64" || architecture == "x86-64") architecture = "amd64";
  if (architecture == "i386" || architecture == "i686") architecture = "386";
  if (architecture == "aarch64" || architecture == "arm64v8") architecture = "arm64";
  if (architecture == "armhf") architecture = "arm", variant = "v7";
  if (architecture == "armel") architecture = "arm", variant = "v6";
  if (!variant.empty() && variant.find_first_not_of("0123456789") == std::string::npos) variant.insert(0, 1, 'v');
  if ((architecture == "arm64" && variant == "v8") || (architecture == "amd64" && variant == "v1")) variant.clear();
  if (architecture == "arm" && variant.empty()) variant = "v7";
}

}  // namespace

Platform Platform::parse(std::string_view text) {
  const std::vector<std::string> parts = split(lower(text), '/');
  Platform platform = of_this_machine();
  if (parts.size() == 1 && parts[0] == "linux") return platform;
  if (parts.size() > 1) platform.os = parts[0];
  platform.architecture = parts.size() > 1 ? parts[1] : parts[0];
  platform.variant = parts.size() > 2 ? parts[2] : "";
  if (platform.os == "linux") normalize(platform);
  const bool known =
      std::find(kArchitectures.begin(), kArchitectures.end(), platform.architecture) != kArchitectures.end();
  if (parts.size() > 3 || !known || platform.os != "linux" ||
      platform.variant.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_") != std::string::npos)
    throw Error(
        fmt::format("unsupported platform '{}': expected a Linux platform such as linux/amd64 or linux/arm64", text));
  return platform;
}

Platform Platform::of_this_machine() {
  utsname names{};
  ::uname(&names);
  Platform platform{.architecture = names.machine};
  if (platform.architecture.starts_with("armv")) platform.architecture = "arm";
  normalize(platform);
  return platform;
}

Platform Platform::of_image(std::string_view os, std::string_view architecture, std::string_view variant) {
  Platform platform{lower(os), lower(architecture), lower(variant)};
  normalize(platform);
  return platform;
}

std::string Platform::to_string() const {
  return fmt::format("{}/{}{}{}", os, architecture, variant.empty() ? "" : "/", variant);
}

}  // namespace adaptdl::image
