// A lock on a directory, held for as long as a process lives: whether a run or a search is active is known by it, not
// by a process id, which another process may have by now.
//
// It is an open file description lock on the file `lock` in the directory.
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

}  // namespace adaptdl::sched
