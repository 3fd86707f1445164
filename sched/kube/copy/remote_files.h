// Inspects files at the remote end of a copy. The functions that have a Shell as a parameter run a command in the
// shell, and may throw Broken and Error.
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
  std::string why;          // for kNothing: "No such file or directory", "Permission denied"
  std::string behind_link;  // if the path of a kFile is a link: the path of the file itself
};

// Describes the file at the path. If the path is a link, describes the file that the link refers to.
RemoteFile inspect(Shell& shell, const std::string& path);

// Returns the SHA-256 of a file's first `size` bytes; null if the remote end has no sha256sum.
std::optional<std::string> remote_sha256(Shell& shell, const std::string& path, std::uint64_t size);

// Returns a unique file name: ".adaptdl-cp-", digits, a dot and the suffix.
std::string temporary_name(std::string_view suffix);

}  // namespace adaptdl::kube
