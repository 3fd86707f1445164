// RunRecord is the record of a run: a directory that its launcher creates, maintains while it runs, and leaves behind.
//
//   RUNS/NAME/run.json       the status of the run, and in the end its outcome; replaced as a whole
//   RUNS/NAME/lock           locked by the launcher for as long as it lives, and by no process afterwards
//   RUNS/NAME/token          the token of the supervisor, while the launcher lives
//   RUNS/NAME/logs/          the replicas' output, unless it goes elsewhere
//   RUNS/NAME/checkpoints/   the checkpoints, unless they go elsewhere
//   RUNS/NAME/run.log        the launcher's own notices, if it has no terminal to show them on
//
// RUNS is runs_directory(). Only the user can access it and everything in it. What an older version left open to other
// users is closed to them when a run continues there. The lock shows whether a launcher lives; a process id would not,
// since another process may have it by now.
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
  // Creates a record named PROGRAM-<date>-<time>. Throws Error if it cannot be created.
  static RunRecord unnamed(const std::filesystem::path& runs, const std::string& program);
  // Creates the record of that name, or takes over that of an ended run. Throws UsageError if an active run has it, and
  // Error if it cannot be created.
  static RunRecord named(const std::filesystem::path& runs, const std::string& name);

  std::string name() const { return directory_.filename().string(); }
  const std::filesystem::path& directory() const noexcept { return directory_; }
  std::filesystem::path checkpoints() const { return directory_ / "checkpoints"; }
  std::filesystem::path logs() const { return directory_ / "logs"; }
  std::filesystem::path notices() const { return directory_ / "run.log"; }
  std::filesystem::path token_file() const { return directory_ / "token"; }
  // Returns the name of the control socket, which depends only on the directory of the record.
  std::string socket_name() const;
  // Returns whether an ended run had the record before.
  bool taken_over() const;

  // Replaces run.json. Returns whether that worked, since a disk may be full.
  bool write(const RunStatus& status, const std::string& socket) const noexcept;
  // Removes the whole record, as if there had been no run.
  void remove() noexcept;

 private:
  RunRecord(std::filesystem::path directory, Fd lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}

  std::filesystem::path directory_;
  Fd lock_;
};

// The readers' side.
struct RunEntry {
  std::filesystem::path directory;
  RunStatus status;    // as last written; "lost", with a reason, if the launcher was killed
  bool alive = false;  // the launcher lives
  std::string socket;  // where the launcher answers
};

// Returns all runs, by the time of their start, or none if there is no such directory.
std::vector<RunEntry> list_runs(const std::filesystem::path& runs);

// Returns the run of exactly that name, if there is one.
std::optional<RunEntry> read_run(const std::filesystem::path& runs, const std::string& name);

// Returns the run of that name, or the only one whose name begins with it. Throws UsageError if none or several match.
RunEntry find_run(const std::filesystem::path& runs, const std::string& name);

// Returns whether the launcher of the run lives.
bool is_alive(const RunEntry& run);

// Removes the record of a run that has ended, except for its checkpoints if `keep_checkpoints`. Throws Error if the run
// is alive, or if something cannot be removed.
void remove_run(const RunEntry& run, bool keep_checkpoints);

// How many ended runs are kept.
inline constexpr std::size_t kEndedRunsKept = 50;

// Removes the records of the ended runs before the newest `keep`, but never a record with checkpoints in it, which are
// a user's work, nor that of a trial: `adaptdl tune` reads how the run of a trial ended when the study is resumed, and
// removes its record then. It is recognized by its name and its checkpoints, until the directory of the study is
// removed.
void prune_runs(const std::filesystem::path& runs, std::size_t keep = kEndedRunsKept) noexcept;

}  // namespace adaptdl::sched
