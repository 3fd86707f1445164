// Creates the directory of the sockets of this user's runs, and the sockets themselves.
//
// Only the user can access the directory (0700), which the system enforces for everything in it. A socket also has mode
// 0600, and a process that accepts a connection checks with is_own_user() whose process is at its other end.
#pragma once

#include <filesystem>

#include "local/fd.h"

namespace adaptdl::sched {

// Returns the user's runtime directory of adaptdl, which is created if needed: $XDG_RUNTIME_DIR/adaptdl if the variable
// is an absolute path of a directory of the user's, else the same in /run/user/UID, else /tmp/adaptdl-UID. A path that
// is too long for the name of a socket is skipped. Throws Error if the last one is unusable, or another user's.
std::filesystem::path runtime_directory();

// Returns a socket that listens there, non-blocking and closed on exec, readable and writable by its owner only. It
// replaces an existing one. REQUIRES that the caller holds the lock of what is served there. Throws Error on failure.
Fd listen_at(const std::filesystem::path& path);

// Returns a connection to the process that listens there, blocking and closed on exec; none if no process does.
Fd connect_to(const std::filesystem::path& path) noexcept;

// Accepts a connection, non-blocking and closed on exec before any other thread can start a process with it. Returns
// none if no connection waits, or if it is from another user.
Fd accept_own_user(int listener) noexcept;

// Returns whether the process at the other end belongs to this user or to root, which has access in any case.
bool is_own_user(int connection) noexcept;

}  // namespace adaptdl::sched
