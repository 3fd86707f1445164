// Deletion of checkpoints that are no longer needed.
#pragma once

#include <filesystem>

#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

// Called after `committed` was saved. Keeps it and the newest of the older checkpoints whose manifests and file sizes
// are correct, `keep` in total. The contents are not checked, because `committed` is known to be undamaged. Also keeps
// checkpoints that cannot be read, that have a newer format, or that have a higher number and therefore belong to
// another job. Never throws: errors are logged as warnings, because the save succeeded.
void prune_after_save(const std::filesystem::path& directory, const Found& committed, int keep);

// Called if the `needed` bytes of a save do not fit on the disk. If that frees enough space, deletes all checkpoints
// except the newest whole one, every byte of which is checked first. Checkpoints in a newer format and checkpoints with
// I/O errors are kept. Returns whether it deleted any. Throws CheckpointError if reading or deleting fails.
bool make_room(const std::filesystem::path& directory, std::uint64_t needed);

}  // namespace adaptdl::checkpoint
