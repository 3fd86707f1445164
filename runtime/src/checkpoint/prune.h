// Deleting the checkpoints that are no longer needed.
#pragma once

#include <filesystem>

#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

// After `committed` was saved: keeps it and the newest others that look whole, `keep` in all. The looks of manifest and
// sizes are enough here, because `committed` is whole for sure. Leaves alone what it cannot read, what is of a newer
// format, and newer numbers, which are another job's. Never throws: what goes wrong is a warning, for the checkpoint is
// saved.
void prune_after_save(const std::filesystem::path& directory, const Found& committed, int keep);

// For a save of `needed` bytes that the disk has no space for: deletes all checkpoints but the newest that is whole,
// which is read in full, if that gives the space. Returns whether it deleted any. Throws CheckpointError if it cannot.
bool make_room(const std::filesystem::path& directory, std::uint64_t needed);

}  // namespace adaptdl::checkpoint
