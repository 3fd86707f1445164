// Deletion of checkpoints that are no longer needed.
#pragma once

#include <filesystem>

#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

// Called after `committed` was saved: keeps it and the newest older ones whose manifests and sizes are right, `keep` in
// all. No more is checked, because `committed` is known to be whole. Also keeps what it cannot read, newer formats, and
// higher numbers, which are another job's. Never throws: errors are logged as warnings, because the save succeeded.
void prune_after_save(const std::filesystem::path& directory, const Found& committed, int keep);

// Called for a save of `needed` bytes that do not fit on the disk: deletes all checkpoints except the newest whole one,
// which it reads in full, if that frees enough space. Returns whether it deleted any. Throws CheckpointError if reading
// or deleting fails.
bool make_room(const std::filesystem::path& directory, std::uint64_t needed);

}  // namespace adaptdl::checkpoint
