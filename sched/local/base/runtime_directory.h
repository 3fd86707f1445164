// Creates the directory for the sockets of this user's runs, and the sockets themselves.
//
// The directory has mode 0700, so only the user can access it and its contents. A socket also has mode 0600, and a
// process that accepts a connection checks with is_own_user() which user's process is at the other end.
#pragma once

#include <filesystem>

#include "base/fd.h"

namespace adaptdl::sched {

// Returns the user's runtime directory for adaptdl, and creates it if needed. It is $XDG_RUNTIME_DIR/adaptdl if the
// variable is the absolute path of a directory that the user owns, otherwise /run/user/UID/adaptdl if the user owns
// /run/user/UID, otherwise /tmp/adaptdl-UID. A path that is unusable or too long for a socket is skipped. Throws Error
// if /tmp/adaptdl-UID is unusable or belongs to another user.
std::filesystem::path runtime_directory();

// Returns a new socket that listens at `path`. It is non-blocking, close-on-exec, and accessible only to its owner.
// Replaces an existing socket. REQUIRES that the caller holds the lock of the service at that path. Throws Error on
// failure.
Fd listen_at(const std::filesystem::path& path);

// Returns a blocking, close-on-exec connection to the process that listens at `path`, or an empty Fd if no process
// does.
Fd connect_to(const std::filesystem::path& path) noexcept;

// Accepts a connection. The connection is non-blocking, and close-on-exec from the start, so that no other thread can
// start a process that inherits it. Returns an empty Fd if no connection is pending or if it is from another user.
Fd accept_own_user(int listener) noexcept;

// Returns whether the process at the other end belongs to this user or to root, which has access in any case.
bool is_own_user(int connection) noexcept;

}  // namespace adaptdl::sched
