// A directory of checkpoints: listing it, adding a checkpoint atomically, and deleting old ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "checkpoint/files.h"
#include "checkpoint/snapshot.h"

namespace adaptdl::checkpoint {

struct Found {
  std::uint64_t number = 0;
  std::filesystem::path path;
};

struct Scan {
  std::vector<Found> checkpoints;      // newest first
  std::vector<std::string> ignored;    // named checkpoint-SOMETHING, where SOMETHING is not a number
  std::vector<std::string> leftovers;  // unfinished saves and deletions, including those in progress
};

// Returns env::checkpoint_path() without a trailing slash.
std::optional<std::filesystem::path> configured_directory();

// Lists `directory`. Throws CheckpointError if it cannot be read. With `missing_is_empty`, treats a missing directory
// as empty.
Scan scan(const std::filesystem::path& directory, bool missing_is_empty = false);

// A file that has not been written yet.
struct FileDraft {
  std::string name;
  std::uint64_t size = 0;
  std::function<void(Sink&)> write;
};

struct StateDraft {
  std::string name;
  std::vector<FileDraft> files;
};

struct Draft {
  Manifest manifest;  // without format, number, created, version or states
  std::vector<StateDraft> states;
};

// Returns the number of bytes that the draft needs on the disk.
std::uint64_t size_on_disk(const Draft& draft);

// Returns the number of bytes that this process can still write to the file system of `directory`, or the maximum value
// if it is unknown.
std::uint64_t free_space(const std::filesystem::path& directory);

// Writes the draft as the next checkpoint in `directory` and commits it. On failure, throws CheckpointError (NoSpace if
// there is too little space) and leaves nothing behind. Also fails if another process commits a checkpoint with the
// same number at the same time.
Found write_checkpoint(const std::filesystem::path& directory, const Draft& draft);

// Deletes a checkpoint in such a way that no other process ever sees it incomplete. Throws CheckpointError.
void delete_checkpoint(const Found& checkpoint);

// Deletes the remains of interrupted saves and deletions in `directory`; with `dry_run`, deletes nothing. Returns their
// paths. Never throws: what cannot be deleted remains.
std::vector<std::filesystem::path> delete_leftovers(const std::filesystem::path& directory, const Scan& scan,
                                                    bool dry_run = false);

}  // namespace adaptdl::checkpoint
