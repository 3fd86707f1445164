// Finds the newest checkpoint in a directory whose bytes are all correct.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/snapshot.h"

namespace adaptdl::checkpoint {

struct Newest {
  std::optional<Snapshot> snapshot;      // nullopt if no checkpoint is intact
  std::vector<std::string> passed_over;  // for each newer checkpoint, why it is not intact
  std::vector<std::string> ignored;      // see Scan
};

// Reads every byte of the newest checkpoint, and of older ones until one is intact. The snapshot holds open the part
// that `rank` saved. Another process may add and delete checkpoints at the same time. With `missing_is_empty`, treats a
// missing directory as empty. Throws CheckpointError if the directory, or a checkpoint that is newer than the result,
// cannot be read for a reason other than damage, or if checkpoints are deleted faster than they can be read.
Newest find_newest(const std::filesystem::path& directory, bool missing_is_empty, int rank = 0);

// Throws CheckpointError if there are checkpoints, but none is intact. `newest` is the result for `directory`.
void require_intact(const std::filesystem::path& directory, const Newest& newest);

}  // namespace adaptdl::checkpoint
