// Parses RUN's mounts, such as --mount=type=cache,target=/root/.cache.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/dockerfile/dockerfile.h"

namespace adaptdl::image {

struct Mount {
  enum class Type { kBind, kCache, kTmpfs, kSecret };
  enum class Sharing { kShared, kPrivate, kLocked };
  Type type = Type::kBind;
  std::string from;  // a stage's name, or an image; "" for the build context or, for a cache, an empty directory
  std::string source, target;
  bool read_only = true;
  std::string id;                             // a cache's ID (default: its target), or a secret's
  Sharing sharing = Sharing::kShared;         // for a cache
  bool required = false;                      // for a secret
  std::optional<std::string> environment;     // for a secret: the environment variable that contains it
  std::optional<unsigned> mode, user, group;  // for a cache or secret
  std::size_t size = 0;                       // for a tmpfs, in bytes; 0 for the system's default
};

// Splits a --mount into its options, with their names in lower case and their values as written. The values of from=
// contain no variables. Throws an Error with the reason, without file or line, as does parse_mount().
std::vector<Pair> mount_options(std::string_view text);

// Parses options whose values are expanded. A target that is written as a relative path remains relative, and a
// cache's ID is empty if none is written.
Mount parse_mount(const std::vector<Pair>& options);

}  // namespace adaptdl::image
