#include "local/base/checkpoint_watch.h"

#include <limits>

#include "adaptdl/checkpoint.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;
namespace {

CheckpointNote note(const checkpoint::Entry& entry) {
  CheckpointNote result{.path = entry.path, .number = entry.number, .epoch = {}, .foreign = !entry.manifest};
  if (entry.manifest) {
    const auto epoch = entry.manifest->progress.find("epoch");
    if (epoch != entry.manifest->progress.end() && epoch->is_number()) result.epoch = epoch->get<double>();
  }
  return result;
}

bool is_foreign(const checkpoint::Entry& entry) {
  std::error_code ignored;
  return !entry.manifest && !fs::exists(entry.path / "manifest.json", ignored) && !fs::is_empty(entry.path, ignored);
}

// Returns the usable checkpoints, newest first, or none if the directory cannot be read.
std::vector<checkpoint::Entry> usable(const std::optional<fs::path>& directory) {
  std::error_code ignored;
  if (!directory || !fs::is_directory(*directory, ignored)) return {};
  try {
    auto entries = checkpoint::list(*directory);
    std::erase_if(entries, [](const checkpoint::Entry& entry) { return !entry.problem.empty() && !is_foreign(entry); });
    return entries;
  } catch (const checkpoint::CheckpointError&) {
    return {};
  }
}

}  // namespace

void CheckpointWatch::mark() {
  const auto entries = usable(directory_);
  highest_at_mark_ = entries.empty() ? std::nullopt : std::optional(entries.front().number);
  reported_.reset();
}

std::optional<CheckpointNote> CheckpointWatch::newest_since_mark() const {
  if (const auto entry = newest(); entry && (!highest_at_mark_ || entry->number > highest_at_mark_)) return entry;
  std::error_code ignored;
  if (reported_ && (!directory_ || !fs::exists(*directory_, ignored)))
    return CheckpointNote{.path = *reported_, .number = {}, .epoch = {}, .foreign = false};
  return std::nullopt;
}

std::optional<CheckpointNote> CheckpointWatch::newest() const {
  const auto entries = usable(directory_);
  if (entries.empty()) return std::nullopt;
  return note(entries.front());
}

int CheckpointWatch::first_restart() const {
  const auto entries = usable(directory_);
  if (entries.empty() || !is_foreign(entries.front()) || entries.front().number >= std::numeric_limits<int>::max())
    return 0;
  return static_cast<int>(entries.front().number) + 1;
}

}  // namespace adaptdl::sched
