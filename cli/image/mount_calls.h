// Mounts as descriptors: made where nobody sees them, then put somewhere.
//
// Threading: plain functions.
#pragma once

#include <cstdint>
#include <string>

#include "socket.h"

namespace adaptdl::image {

// A copy of what is mounted at an open file or directory, with all below it if `recursive`. Throws Error that names
// `path`.
net::Fd clone_mount(int file, const std::string& path, bool recursive);
// The same of a path.
net::Fd clone_mount(const std::string& path, bool recursive);

// Adds MOUNT_ATTR_ flags to a mount and, if it is such a copy, all below it. Throws Error.
void restrict_mount(const net::Fd& mount, std::uint64_t flags);

// Puts it at a path. Throws Error that names it.
void attach_mount(const net::Fd& mount, const std::string& at);

}  // namespace adaptdl::image
