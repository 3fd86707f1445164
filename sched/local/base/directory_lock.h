// A process that locks a directory holds the lock until the process ends. The lock shows whether a run or a search is
// active; a process id would not, since it may have been reused.
//
// The lock is an open file description lock on the file `lock` in the directory. A process may lock other files in the
// same way, for itself and for the processes that inherit the descriptor.
#pragma once

#include <filesystem>

#include "base/fd.h"

namespace adaptdl::sched {

enum class Locking {
  kLocked,
  kHeld,      // another process holds the lock
  kVanished,  // the directory does not exist, or was removed during the call
  kFailed,    // see errno
};

// Locks the directory until `file` is closed.
Locking lock_directory(const std::filesystem::path& directory, Fd& file);

// Returns whether any process holds the lock. Does not acquire the lock: a process that tries to lock the directory at
// that moment would fail.
bool is_locked(const std::filesystem::path& directory);

// Locks an open file until all its descriptors are closed, including descriptors that other processes inherited. `file`
// must be open for writing. Never returns kVanished.
Locking lock_file(const Fd& file);

// Returns whether lock_file() has locked that file.
bool is_file_locked(const std::filesystem::path& file);

}  // namespace adaptdl::sched
