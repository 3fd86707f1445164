// An image's name, as users write it: [registry/]repository[:tag][@digest].
//
// Missing parts are filled in as in Docker: `busybox` is docker.io/library/busybox.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

struct Reference {
  std::string registry;    // host[:port], an IPv6 address in brackets; never empty
  std::string repository;  // such as library/busybox; never empty
  std::string tag;         // empty if none was given
  std::string digest;      // empty if none was given

  // Throws a UsageError that names the invalid part and the rule for it.
  static Reference parse(std::string_view text);

  // Returns the version to use in a manifest request: the digest, else the tag, else "latest".
  std::string version() const;
  // Returns the name with all given parts: docker.io/library/busybox:1.36.
  std::string full() const;
  // Returns the shortest name that parses to the same reference: busybox:1.36.
  std::string brief() const;

  friend bool operator==(const Reference&, const Reference&) = default;
};

// The registry for names that contain none.
inline constexpr std::string_view kDockerHub = "docker.io";

// Returns whether `text` is valid as host[:port] in a reference.
bool is_registry(std::string_view text);
// Returns whether `text` is valid as a repository.
bool is_repository(std::string_view text);

}  // namespace adaptdl::image
