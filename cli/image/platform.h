// The platform that an image is for: "linux/amd64", "linux/arm/v7".
//
// Threading: plain values.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

struct Platform {
  std::string os = "linux";
  std::string architecture;
  std::string variant;  // "" for the architecture's usual one

  // As images name it: "x86_64" is amd64, "aarch64" and arm64's v8 are arm64. One part alone is an architecture or an
  // operating system. Throws Error that quotes the text, without a place.
  static Platform parse(std::string_view text);
  static Platform of_this_machine();
  // As a registry or an image has it, which may be anything.
  static Platform of_image(std::string_view os, std::string_view architecture, std::string_view variant);
  std::string to_string() const;
  bool operator==(const Platform&) const = default;
};

}  // namespace adaptdl::image
