// Where the sockets of this user's runs lie, and the sockets themselves.
//
// The directory belongs to the user alone (0700), which the system enforces for all that lies in it; a socket has 0600
// besides, and whoever accepts a connection asks with is_own_user() who is at its other end.
#pragma once

#include <filesystem>

#include "local/fd.h"

namespace adaptdl::sched {

// The user's runtime directory of adaptdl, made if it is not there: $XDG_RUNTIME_DIR/adaptdl where the variable is an
// absolute path of a directory of the user's, else the same below /run/user/UID, else /tmp/adaptdl-UID. One whose path
// is too long for the name of a socket is passed over. Throws Error if the last one cannot be used, or is somebody
// else's.
std::filesystem::path runtime_directory();

// A socket that listens there, non-blocking and closed on exec, readable and writable by its owner alone. One that lies
// there already is replaced. REQUIRES that the caller holds the lock of whatever is served. Throws Error.
Fd listen_at(const std::filesystem::path& path);

// A connection to whoever listens there, blocking and closed on exec; none if nobody does.
Fd connect_to(const std::filesystem::path& path) noexcept;

// Accepts a connection, non-blocking and closed on exec before any other thread can start a process with it; none if
// nobody waits, or if it is of another user.
Fd accept_own_user(int listener) noexcept;

// Whether the process at the other end of a connection belongs to this user (or is root's, whom nothing keeps out).
bool is_own_user(int connection) noexcept;

}  // namespace adaptdl::sched
