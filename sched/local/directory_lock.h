// A lock on a directory is held for as long as a process lives. It shows whether a run or a search is active; a process
// id would not, since another process may have it by now.
//
// It is an open file description lock on the file `lock` in the directory. A process may lock another file in the same
// way, for itself and for the processes that inherit its descriptor.
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

// Returns whether any process holds the lock. Does not lock it, since that could fail a process that is about to.
bool is_locked(const std::filesystem::path& directory);

// Locks an open file until all its descriptors are closed, including those of processes that inherited one. `file` must
// be open for writing. Never returns kVanished.
Locking lock_file(const Fd& file);

// Returns whether lock_file() has locked that file.
bool is_file_locked(const std::filesystem::path& file);

}  // namespace adaptdl::sched
