// Opens paths in a tree that is not to be trusted: an image's files, a build context, what a command left behind.
//
// Every such path goes through here, and what follows works on the descriptor. A path string of an image that reaches a
// plain system call would be looked up in the builder's own files, magic links of /proc included.
//
// Threading: plain functions.
#pragma once

#include <string>

#include "socket.h"

namespace adaptdl::image {

enum class Links {
  kInRoot,   // followed, absolute ones and ".." too, as if `root` were the root of all files
  kRefused,  // ELOOP, and ".." must not leave `root` (EXDEV)
};

// The descriptor of `path` in the open directory `root`, close-on-exec; "" is `root` itself. `flags` are those of
// open(), and without O_CREAT `mode` must be 0. On failure it is empty, and errno says why. Links of /proc that lead to
// open files, as /proc/self/fd/3, are never followed (ELOOP).
net::Fd open_rooted(int root, const std::string& path, int flags, Links links, unsigned mode = 0);

}  // namespace adaptdl::image
