#include "checkpoint/prune.h"

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <system_error>

#include "adaptdl/log.h"
#include "checkpoint/snapshot.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

namespace {

enum class Fate { kWhole, kDamaged, kUnknown };

Fate look_at(const fs::path& path, bool contents) {
  try {
    Snapshot snapshot(path);
    snapshot.check_sizes();
    if (contents) snapshot.check_contents();
    return Fate::kWhole;
  } catch (const Unreadable&) {
    return Fate::kUnknown;
  } catch (const Damage&) {
    return Fate::kDamaged;
  } catch (const NewerFormat&) {
    return Fate::kUnknown;
  }
}

// Returns how many bytes the deletion of the checkpoint would free. Files that have other hard links free nothing; on a
// node of a Ray cluster, for example, the directories of several replicas contain the same files.
std::uint64_t bytes_freed_by_deleting(const fs::path& checkpoint) {
  std::uint64_t size = 0;
  std::error_code error;
  for (fs::directory_iterator it(checkpoint, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    const auto bytes = it->file_size(unknown);
    if (!unknown && it->hard_link_count(unknown) <= 1) size += bytes;
  }
  return size;
}

// Returns the checkpoints to delete: all except the kUnknown ones and the newest `keep` whole ones, of which it checks
// every byte. If none is whole, returns nothing.
std::vector<Found> not_to_keep(const std::vector<Found>& newest_first, int keep) {
  std::vector<Found> others;
  int kept = 0;
  for (const Found& found : newest_first) {
    const Fate fate = look_at(found.path, kept < keep);
    if (fate == Fate::kUnknown) continue;
    if (fate == Fate::kWhole && kept < keep)
      ++kept;
    else
      others.push_back(found);
  }
  return kept > 0 ? others : std::vector<Found>();
}

}  // namespace

void prune_after_save(const fs::path& directory, const Found& committed, int keep) {
  try {
    int kept = 1;
    for (const Found& found : scan(directory).checkpoints) {
      if (found.number >= committed.number) continue;
      try {
        const Fate fate = look_at(found.path, false);
        if (fate == Fate::kUnknown) continue;
        if (fate == Fate::kWhole && kept < keep)
          ++kept;
        else
          delete_checkpoint(found);
      } catch (const CheckpointError& error) {
        log::warn(fmt::format("keeping '{}': {}", found.path.string(), error.what()));
      }
    }
  } catch (const std::exception& error) {
    log::warn(fmt::format("keeping old checkpoints: {}", error.what()));
  }
}

bool make_room(const fs::path& directory, std::uint64_t needed) {
  const std::vector<Found> doomed = not_to_keep(scan(directory).checkpoints, 1);
  std::uint64_t freed = 0;
  for (const Found& found : doomed) freed += bytes_freed_by_deleting(found.path);
  if (freed == 0 || free_space(directory) + freed < needed) return false;
  for (const Found& found : doomed) delete_checkpoint(found);
  return true;
}

std::vector<fs::path> prune(const fs::path& directory, int keep, bool dry_run) {
  if (keep < 1) throw UsageError(fmt::format("the number of checkpoints to keep must be at least 1, got {}", keep));
  const Scan present = scan(directory);
  std::vector<fs::path> deleted = delete_leftovers(directory, present, dry_run);
  for (const Found& found : not_to_keep(present.checkpoints, keep)) {
    if (!dry_run) delete_checkpoint(found);
    deleted.push_back(found.path);
  }
  return deleted;
}

}  // namespace adaptdl::checkpoint
