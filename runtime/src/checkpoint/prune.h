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

}  // namespace adaptdl::checkpoint
