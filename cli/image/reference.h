// The name of an image, as users type it: [registry/]repository[:tag][@digest].
//
// What is left out is filled in as Docker does: `busybox` is docker.io/library/busybox. Values; threading: any.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

struct Reference {
  std::string registry;    // host[:port], an IPv6 address in brackets; never empty
  std::string repository;  // as library/busybox; never empty
  std::string tag;         // empty: none was given
  std::string digest;      // empty: none was given

  // Throws UsageError that says which part is wrong, and how it should be.
  static Reference parse(std::string_view text);

  // What a manifest is asked for by: the digest, else the tag, else "latest".
  std::string version() const;
  // With all parts that are given: docker.io/library/busybox:1.36.
  std::string full() const;
  // As short as it is parsed to the same: busybox:1.36.
  std::string brief() const;

  friend bool operator==(const Reference&, const Reference&) = default;
};

// The registry of a name without one.
inline constexpr std::string_view kDockerHub = "docker.io";

// Whether `text` can stand as host[:port] in a reference.
bool is_registry(std::string_view text);
// Whether `text` can stand as a repository.
bool is_repository(std::string_view text);

}  // namespace adaptdl::image
