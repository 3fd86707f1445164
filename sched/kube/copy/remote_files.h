// What is known of files where a shell runs.
//
// Threading: plain functions; each runs a command. Throw Broken and Error.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "kube/copy/place.h"
#include "kube/copy/shell.h"

namespace adaptdl::kube {

struct RemoteFile {
  Found found = Found::kNothing;
  std::uint64_t size = 0;
  mode_t mode = 0;
  std::time_t modified = 0;
  std::string why;          // of kNothing: "No such file or directory", "Permission denied"
  std::string behind_link;  // of a kFile whose path is a link: the file's own path
};

// Links are followed.
RemoteFile inspect(Shell& shell, const std::string& path);

// Of a file, or of so many bytes at the beginning of one that has more; null: the place has no sha256sum.
std::optional<std::string> remote_sha256(Shell& shell, const std::string& path, std::uint64_t size);

// A name of a file that nobody else has: ".adaptdl-cp-", digits, and the suffix.
std::string temporary_name(std::string_view suffix);

}  // namespace adaptdl::kube
