// A lock on a directory, held for as long as a process lives: whether a run or a search is active is known by it, not
// by a process id, which another process may have by now.
//
// It is an open file description lock on the file `lock` in the directory. A process may lock a file of its own in the
// same way, for itself and those that inherit its descriptor.
//
// Threading: free of state.
#pragma once

#include <filesystem>

#include "local/fd.h"

namespace adaptdl::sched {

enum class Locking {
  kLocked,
  kHeld,      // by another process
  kVanished,  // the directory does not exist, or was removed meanwhile
  kFailed,    // see errno
};

// Locks the directory until `file` is closed.
Locking lock_directory(const std::filesystem::path& directory, Fd& file);

// Whether any process holds the lock. Does not lock it, which could fail a process that is about to.
bool is_locked(const std::filesystem::path& directory);

// Locks an open file until all its descriptors are closed, also those of processes that inherited one.
// `file` must be open for writing. Never returns kVanished.
Locking lock_file(const Fd& file);

// Whether lock_file() holds that file.
bool is_file_locked(const std::filesystem::path& file);

}  // namespace adaptdl::sched
