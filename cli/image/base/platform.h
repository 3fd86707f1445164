// An image's platform, such as "linux/amd64" or "linux/arm/v7".
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

struct Platform {
  std::string os = "linux";
  std::string architecture;
  std::string variant;  // "" for the architecture's default

  // Parses a platform, and converts aliases to the names that images use: "x86_64" becomes amd64, and "aarch64" and
  // "arm64/v8" become arm64. A single part is an architecture or an operating system. Throws an Error that quotes the
  // text, without file or line.
  static Platform parse(std::string_view text);
  static Platform of_this_machine();
  // Converts values from a registry or an image. These values may be arbitrary text.
  static Platform of_image(std::string_view os, std::string_view architecture, std::string_view variant);
  std::string to_string() const;
  bool operator==(const Platform&) const = default;
};

}  // namespace adaptdl::image
