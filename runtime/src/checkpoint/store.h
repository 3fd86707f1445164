// A directory of checkpoints: what lies in it, adding one as a whole, deleting old ones.
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
  std::vector<std::string> ignored;    // named checkpoint-SOMETHING, which is no number
  std::vector<std::string> leftovers;  // of savers: named as below, whether their saver lives or not
};

// env::checkpoint_path() without a slash at its end.
std::optional<std::filesystem::path> configured_directory();

// What lies in `directory`. Throws CheckpointError if it cannot be read; a missing one is empty if `missing_is_empty`.
Scan scan(const std::filesystem::path& directory, bool missing_is_empty = false);

// A file that is to be written: its name, its size, and what writes it.
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
  Manifest manifest;  // all but format, number, created, version and states
  std::vector<StateDraft> states;
};

// Bytes that its files need on a disk.
std::uint64_t size_on_disk(const Draft& draft);

// Bytes that this process can still write to the file system of `directory`; the largest number if that is unknown.
std::uint64_t free_space(const std::filesystem::path& directory);

// Writes the draft as the next checkpoint in `directory` and commits it. Throws CheckpointError, and leaves nothing
// behind, if that fails, if there is too little space (NoSpace), or if someone else commits one of the same number
// meanwhile.
Found write_checkpoint(const std::filesystem::path& directory, const Draft& draft);

// Deletes a checkpoint, such that no other process ever sees a part of it. Throws CheckpointError.
void delete_checkpoint(const Found& checkpoint);

// Deletes what dead savers left in `directory`; with `dry_run` only looks. Returns the paths. Never throws: what cannot
// be deleted stays.
std::vector<std::filesystem::path> delete_leftovers(const std::filesystem::path& directory, const Scan& scan,
                                                    bool dry_run = false);

}  // namespace adaptdl::checkpoint
