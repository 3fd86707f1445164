// Opens paths in an untrusted tree: an image's files, a build context, or the files that a command has changed.
//
// Every such path is opened here, and all further work uses the descriptor. A plain system call would resolve the path
// in the builder's own file system, including magic links in /proc.
#pragma once

#include <filesystem>
#include <string>

#include "base/fd.h"

namespace adaptdl::image {

enum class Links {
  kInRoot,   // followed, including absolute links and "..", as if `root` were the root directory
  kRefused,  // an error: ELOOP for links, EXDEV for a ".." that leaves `root`
};

// Opens `path` in the directory `root` and returns a close-on-exec descriptor; "" opens `root` itself. `flags` and
// `mode` have the same meaning as in open(2); `mode` must be 0 without O_CREAT. On failure the descriptor is empty and
// errno is set. Magic links, such as /proc/self/fd/3, always fail with ELOOP.
Fd open_rooted(int root, const std::string& path, int flags, Links links, unsigned mode = 0);

// Opens `path` in the directory at `root` with O_PATH, following links in `path`. Throws an Error that names `path`.
Fd open_inside(const std::filesystem::path& root, const std::string& path);

}  // namespace adaptdl::image
