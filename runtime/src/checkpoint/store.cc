#include "checkpoint/store.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <iterator>
#include <limits>
#include <system_error>

#include "adaptdl/env.h"
#include "checkpoint/group.h"
#include "checkpoint/manifest.h"
#include "checkpoint/saving_directory.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kDeleting = ".deleting-";
// Where other machines do not see the lock of a saving process, a process that has not written for this long is
// considered dead.
constexpr std::chrono::hours kDeadAfter{1};

std::string now_utc() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

std::string readable_size(std::uint64_t bytes) {
  if (bytes < 1024 * 1024) return fmt::format("{} KiB", (bytes + 1023) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

// Returns whether the directory may be on another machine. In that case, Linux usually locks directories only for the
// processes of this machine.
bool is_on_network(int directory) {
  struct statfs info {};
  constexpr std::uint32_t kSmb2 = 0xFE534D42, kCifs = 0xFF534D42, kLustre = 0x0BD00BD0;
  constexpr std::uint32_t kTypes[] = {NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, V9FS_MAGIC, AFS_SUPER_MAGIC, kSmb2,
                                      kCifs,           kLustre};
  return ::fstatfs(directory, &info) != 0 ||
         std::ranges::find(kTypes, static_cast<std::uint32_t>(info.f_type)) != std::end(kTypes);
}

// Returns whether neither the directory nor a file in it has changed for kDeadAfter.
bool is_idle(const fs::path& path) {
  std::error_code error;
  auto changed = fs::last_write_time(path, error);
  if (error) return false;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (const auto time = at->last_write_time(error); !error) changed = std::max(changed, time);
  }
  return !error && fs::file_time_type::clock::now() - changed > kDeadAfter;
}

// The caller must hold `lock` until it has deleted the directory, because the saving process may be about to lock it.
bool saver_is_dead(const fs::path& path, Fd& lock) {
  lock = Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return false;
  const bool locked = ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno == EWOULDBLOCK) return false;
  return (locked && !is_on_network(lock.get())) || is_idle(path);
}

constexpr std::uint64_t kBlock = 4096;

// Reports a lack of space before anything is written. The space may still run out during the save.
void check_space(const fs::path& directory, const Draft& draft) {
  const std::uint64_t needed = size_on_disk(draft), available = free_space(directory);
  if (needed > available)
    throw NoSpace(fmt::format("{}: {} ({} needed, {} free)", directory.string(),
                              std::generic_category().message(ENOSPC), readable_size(needed),
                              readable_size(available)));
}

// Exceptions from a state's own functions do not name the state, so its name is added here.
void write_state(const std::string& state, const FileDraft& file, Sink& sink) {
  try {
    file.write(sink);
  } catch (const CheckpointError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckpointError(fmt::format("state '{}': {}", state, first_line(error)));
  }
}

}  // namespace

std::optional<fs::path> configured_directory() {
  const auto text = env::checkpoint_path();
  if (!text) return {};
  const fs::path path = *text;
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

Scan scan(const fs::path& directory, bool missing_is_empty) {
  Scan result;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (const auto number = checkpoint_number(name))
      result.checkpoints.push_back({*number, it->path()});
    else if (name.starts_with(kCheckpointPrefix))
      result.ignored.push_back(name);
    else if (name.starts_with(kSavingPrefix) || name.starts_with(kDeleting))
      result.leftovers.push_back(name);
  }
  if (error && !(missing_is_empty && error == std::errc::no_such_file_or_directory))
    throw CheckpointError(errno_text(fmt::format("cannot read '{}'", directory.string()), error.value()));
  std::sort(result.checkpoints.begin(), result.checkpoints.end(),
            [](const Found& a, const Found& b) { return a.number > b.number; });
  std::sort(result.ignored.begin(), result.ignored.end());
  std::sort(result.leftovers.begin(), result.leftovers.end());
  return result;
}

std::uint64_t size_on_disk(const Draft& draft) {
  std::uint64_t size = 2 * kBlock;
  for (const StateDraft& state : draft.states)
    for (const FileDraft& file : state.files) size += (file.size + kBlock - 1) / kBlock * kBlock;
  return size;
}

std::uint64_t free_space(const fs::path& directory) {
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0 || space.f_blocks == 0)
    return std::numeric_limits<std::uint64_t>::max();
  return (::geteuid() == 0 ? space.f_bfree : space.f_bavail) * std::uint64_t{space.f_frsize};
}

Found write_checkpoint(const fs::path& directory, const Draft& draft) {
  const Scan present = scan(directory);
  delete_leftovers(directory, present);
  check_space(directory, draft);

  Manifest manifest = draft.manifest;
  manifest.number = present.checkpoints.empty() ? 0 : present.checkpoints.front().number + 1;
  const fs::path target = directory / checkpoint_name(manifest.number);
  if (!checkpoint_number(target.filename().string()))
    throw CheckpointError(fmt::format("cannot save a checkpoint after '{}': it has the highest possible number; "
                                      "move it to another directory",
                                      present.checkpoints.front().path.string()));
  SavingDirectory saving(directory, manifest.number);
  for (const StateDraft& state : draft.states) {
    StateInfo info{state.name, {}};
    for (const FileDraft& file : state.files) {
      OutputFile output(saving.path() / file.name);
      write_state(state.name, file, output);
      info.files.push_back(output.finish());
    }
    manifest.states.push_back(std::move(info));
  }
  manifest.created = now_utc();
  manifest.version = ADAPTDL_VERSION;
  OutputFile output(saving.path() / kManifestName);
  output.write(manifest_text(manifest));
  output.finish();
  saving.commit(target);
  return {manifest.number, target};
}

void delete_checkpoint(const Found& checkpoint) {
  const fs::path doomed =
      checkpoint.path.parent_path() / fmt::format("{}{}-{}", kDeleting, checkpoint.number, random_suffix());
  std::error_code error;
  fs::rename(checkpoint.path, doomed, error);
  if (error == std::errc::no_such_file_or_directory) return;  // another process has deleted it
  if (!error) fs::remove_all(doomed, error);
  if (error)
    throw CheckpointError(errno_text(fmt::format("cannot delete '{}'", checkpoint.path.string()), error.value()));
}

std::vector<fs::path> delete_leftovers(const fs::path& directory, const Scan& found, bool dry_run) {
  std::vector<fs::path> deleted;
  for (const std::string& name : found.leftovers) {
    const fs::path path = directory / name;
    Fd lock;
    if (name.starts_with(kSavingPrefix) && !saver_is_dead(path, lock)) continue;
    std::error_code error;
    if (!dry_run) fs::remove_all(path, error);
    if (!error) deleted.push_back(path);
  }
  return deleted;
}

}  // namespace adaptdl::checkpoint
