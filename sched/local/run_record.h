// The record of a run: a directory that its launcher makes, keeps while it runs, and leaves behind.
//
//   RUNS/NAME/run.json       how the run is getting on, and in the end how it went; replaced as a whole
//   RUNS/NAME/lock           held locked by the launcher for as long as it lives, and by nobody after, however it ended
//   RUNS/NAME/token          the token of the supervisor, while the launcher lives
//   RUNS/NAME/logs/          the replicas' output, unless it goes elsewhere
//   RUNS/NAME/checkpoints/   unless they go elsewhere
//   RUNS/NAME/run.log        the launcher's own notices, if it has no terminal to show them on
//
// RUNS is runs_directory(). It and all in it belong to the user alone; what an older version left open to others is
// closed to them when a run continues there. Whether a launcher lives is known by the lock, not by a process id, which
// another process may have by now.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "local/fd.h"
#include "local/run_status.h"

namespace adaptdl::sched {

// The launcher's side. Threading: used by one thread at a time.
class RunRecord {
 public:
  // A new record named PROGRAM-<date>-<time>. Throws Error if it cannot be made.
  static RunRecord unnamed(const std::filesystem::path& runs, const std::string& program);
  // The record of that name: a new one, or one that an ended run left. Throws UsageError if a living run has it, and
  // Error if it cannot be made.
  static RunRecord named(const std::filesystem::path& runs, const std::string& name);

  std::string name() const { return directory_.filename().string(); }
  const std::filesystem::path& directory() const noexcept { return directory_; }
  std::filesystem::path checkpoints() const { return directory_ / "checkpoints"; }
  std::filesystem::path logs() const { return directory_ / "logs"; }
  std::filesystem::path notices() const { return directory_ / "run.log"; }
  std::filesystem::path token_file() const { return directory_ / "token"; }
  // The name of the control socket: the same whenever the same record is made.
  std::string socket_name() const;
  // Whether an ended run had it before.
  bool taken_over() const;

  // Replaces run.json. Returns whether that worked: a disk may be full.
  bool write(const RunStatus& status, const std::string& socket) const noexcept;
  // Removes all of it, as if there had been no run.
  void remove() noexcept;

 private:
  RunRecord(std::filesystem::path directory, Fd lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}

  std::filesystem::path directory_;
  Fd lock_;
};

// The side of those who read it.
struct RunEntry {
  std::filesystem::path directory;
  RunStatus status;    // as it was written last; "lost", with a why, if the launcher was killed
  bool alive = false;  // the launcher is there
  std::string socket;  // where it answers
};

// All runs, by the time of their start. None if there is no such directory.
std::vector<RunEntry> list_runs(const std::filesystem::path& runs);

// The run of exactly that name, if there is one.
std::optional<RunEntry> read_run(const std::filesystem::path& runs, const std::string& name);

// The run of that name, or the only one whose name begins with it. Throws UsageError if there is none, or several.
RunEntry find_run(const std::filesystem::path& runs, const std::string& name);

// Whether the launcher of the run lives.
bool is_alive(const RunEntry& run);

// Removes the record of a run that has ended, all but the checkpoints in it if they are to be kept. Throws Error if the
// run is alive, or if something cannot be removed.
void remove_run(const RunEntry& run, bool keep_checkpoints);

// How many ended runs are kept.
inline constexpr std::size_t kEndedRunsKept = 50;

// Removes the records of the ended runs before the newest `keep`; but never one with checkpoints in it, which are
// somebody's work, nor that of a trial: `adaptdl tune` reads how its run ended when the study is resumed, and removes
// the record then. It is recognized by its name and its checkpoints, until the directory of the study is removed.
void prune_runs(const std::filesystem::path& runs, std::size_t keep = kEndedRunsKept) noexcept;

}  // namespace adaptdl::sched
