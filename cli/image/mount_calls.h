// Mounts as file descriptors: created detached, then attached to a path. All functions throw Error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "socket.h"

namespace adaptdl::image {

// Options of a file system by name; an empty value is a flag.
using MountOptions = std::initializer_list<std::pair<const char*, std::string>>;

// Creates a file system of a type such as "tmpfs". `attributes` are MOUNT_ATTR_ flags.
net::Fd new_mount(const char* type, std::uint64_t attributes, MountOptions options = {});

// Clones the mount at an open file or directory, including all mounts below if `recursive`. `path` is for errors.
net::Fd clone_mount(int file, const std::string& path, bool recursive);
// The same for a path.
net::Fd clone_mount(const std::string& path, bool recursive);

// Adds MOUNT_ATTR_ flags to a mount and, if it is such a clone, to all mounts below it.
void restrict_mount(const net::Fd& mount, std::uint64_t flags);

// Attaches it to an open file or directory. `path` is for errors. The descriptor still refers to the mount's root.
void attach_mount(const net::Fd& mount, int target, const std::string& path);
// The same for a path.
void attach_mount(const net::Fd& mount, const std::string& at);

}  // namespace adaptdl::image
