// Mounts as file descriptors: created detached, then attached to a path. All functions throw Error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/fd.h"

namespace adaptdl::image {

// A file system's options by name; an option with an empty value is a flag.
using MountOptions = std::initializer_list<std::pair<const char*, std::string>>;

// Creates a file system of a type such as "tmpfs". `attributes` are MOUNT_ATTR_ flags.
Fd new_mount(const char* type, std::uint64_t attributes, MountOptions options = {});

// Clones the mount at an open file or directory and, if `recursive`, all mounts below it. Errors name `path`.
Fd clone_mount(int file, const std::string& path, bool recursive);
// Clones the mount at a path.
Fd clone_mount(const std::string& path, bool recursive);

// Adds MOUNT_ATTR_ flags to a detached mount and to all mounts below it.
void restrict_mount(const Fd& mount, std::uint64_t flags);

// Attaches a mount to an open file or directory. Errors name `path`. The descriptor still refers to the mount's root.
void attach_mount(const Fd& mount, int target, const std::string& path);
// Attaches a mount at a path.
void attach_mount(const Fd& mount, const std::string& at);

}  // namespace adaptdl::image
