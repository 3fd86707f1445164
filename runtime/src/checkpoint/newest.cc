#include "checkpoint/newest.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <system_error>
#include <utility>

#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

namespace {

// Tries the checkpoints, newest first. Returns false if one was deleted in the meantime; the caller must then scan
// again.
bool try_candidates(const Scan& found, int rank, Newest& result) {
  result.passed_over.clear();
  for (const Found& candidate : found.checkpoints) {
    try {
      Snapshot snapshot(candidate.path, rank);
      snapshot.check_sizes();
      snapshot.check_contents();
      result.snapshot = std::move(snapshot);
      return true;
    } catch (const Damage& damage) {
      std::error_code error;
      if (!fs::exists(fs::symlink_status(candidate.path, error))) return false;
      result.passed_over.emplace_back(damage.what());
    }
  }
  return true;
}

}  // namespace

Newest find_newest(const fs::path& directory, bool missing_is_empty, int rank) {
  // A job that saves to the directory at the same time deletes old checkpoints as it adds new ones.
  constexpr int kMaxLooks = 10;
  Newest result;
  for (int look = 0; look <= kMaxLooks; ++look) {
    Scan found = scan(directory, missing_is_empty);
    if (!try_candidates(found, rank, result)) continue;
    result.ignored = std::move(found.ignored);
    return result;
  }
  throw CheckpointError(fmt::format(
      "cannot load a checkpoint from '{}': another process keeps deleting the checkpoints there", directory.string()));
}

void require_intact(const fs::path& directory, const Newest& newest) {
  if (newest.snapshot || newest.passed_over.empty()) return;
  throw CheckpointError(fmt::format(
      "no intact checkpoint in '{}' ({}); restore one from a backup, or, to start from the beginning, move the "
      "checkpoint-* directories away or choose another directory",
      directory.string(), fmt::join(newest.passed_over, "; ")));
}

}  // namespace adaptdl::checkpoint
