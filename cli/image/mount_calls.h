// Mounts as descriptors: made where nobody sees them, then put somewhere.
//
// Threading: plain functions. All throw Error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "socket.h"

namespace adaptdl::image {

// Options of a file system by their names; an empty value: a flag.
using MountOptions = std::initializer_list<std::pair<const char*, std::string>>;

// A new file system of a type such as "tmpfs". `attributes` are MOUNT_ATTR_ flags.
net::Fd new_mount(const char* type, std::uint64_t attributes, MountOptions options = {});

// A copy of what is mounted at an open file or directory, with all below it if `recursive`. `path` is for errors.
net::Fd clone_mount(int file, const std::string& path, bool recursive);
// The same of a path.
net::Fd clone_mount(const std::string& path, bool recursive);

// Adds MOUNT_ATTR_ flags to a mount and, if it is such a copy, all below it.
void restrict_mount(const net::Fd& mount, std::uint64_t flags);

// Puts it on an open file or directory. `path` is for errors. The descriptor of the mount stays that of its root.
void attach_mount(const net::Fd& mount, int target, const std::string& path);
// The same on a path.
void attach_mount(const net::Fd& mount, const std::string& at);

}  // namespace adaptdl::image
