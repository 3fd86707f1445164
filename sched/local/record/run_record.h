// RunRecord is the record of a run: a directory that the run's launcher creates, maintains during the run, and leaves
// behind.
//
//   RUNS/NAME/run.json       the run's status, and in the end its outcome; replaced as a whole
//   RUNS/NAME/lock           locked by the launcher until it ends, and by no process afterwards
//   RUNS/NAME/token          the supervisor's token, while the launcher is alive
//   RUNS/NAME/logs/          the replicas' output, unless it is written elsewhere
//   RUNS/NAME/checkpoints/   the checkpoints, unless they are saved elsewhere
//   RUNS/NAME/run.log        the launcher's own notices, if it has no terminal to show them on
//
// RUNS is runs_directory(). Only the user can access it and its contents. If an older version left a record accessible
// to other users, their access is removed when a run takes over the record. The lock shows whether the launcher is
// alive; a process id would not, since it may have been reused.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "local/record/run_status.h"

namespace adaptdl::sched {

// The launcher's view of a record.
class RunRecord {
 public:
  // Creates a record named PROGRAM-<date>-<time>. Throws Error if the record cannot be created.
  static RunRecord unnamed(const std::filesystem::path& runs, const std::string& program);
  // Creates the record with this name, or takes over the record of an ended run. Throws UsageError if an active run has
  // the name, and Error if the record cannot be created.
  static RunRecord named(const std::filesystem::path& runs, const std::string& name);

  std::string name() const { return directory_.filename().string(); }
  const std::filesystem::path& directory() const noexcept { return directory_; }
  std::filesystem::path checkpoints() const { return directory_ / "checkpoints"; }
  std::filesystem::path logs() const { return directory_ / "logs"; }
  std::filesystem::path notices() const { return directory_ / "run.log"; }
  std::filesystem::path token_file() const { return directory_ / "token"; }
  // Returns the name of the control socket, which depends only on the record's directory.
  std::string socket_name() const;
  // Returns whether the record was taken over from an ended run.
  bool taken_over() const;

  // Replaces run.json. Returns false if that failed, for example because the disk is full.
  bool write(const RunStatus& status, const std::string& socket) const noexcept;
  // Removes the record, except for checkpoints that an earlier run left in its directory.
  void remove() noexcept;

 private:
  RunRecord(std::filesystem::path directory, Fd lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}

  std::filesystem::path directory_;
  Fd lock_;
};

// A reader's view of a record.
struct RunEntry {
  std::filesystem::path directory;
  RunStatus status;    // as last written; "lost", with a reason, if the launcher was killed
  bool alive = false;  // the launcher is alive
  std::string socket;  // the launcher's control socket
};

// Returns all runs, sorted by the time of their start, or an empty list if the directory does not exist.
std::vector<RunEntry> list_runs(const std::filesystem::path& runs);

// Returns the run with exactly this name, or nullopt if there is none.
std::optional<RunEntry> read_run(const std::filesystem::path& runs, const std::string& name);

// Returns the run with this name, or the only run whose name begins with it. Throws UsageError if no run matches, or if
// several do.
RunEntry find_run(const std::filesystem::path& runs, const std::string& name);

// Returns whether the run's launcher is alive.
bool is_alive(const RunEntry& run);

// Removes the record of a run that has ended, except for its checkpoints if `keep_checkpoints` is true. Throws Error if
// the run is still running, or if a file cannot be removed.
void remove_run(const RunEntry& run, bool keep_checkpoints);

// The number of ended runs whose records are kept.
inline constexpr std::size_t kEndedRunsKept = 50;

// Removes the records of all ended runs except the newest `keep`. Never removes a record that contains checkpoints,
// which are the user's work, or the record of a trial: when a study is resumed, `adaptdl tune` reads how its trials'
// runs ended, and then removes their records. A trial's record is recognized by its name and the path of its
// checkpoints until the study's directory is removed.
void prune_runs(const std::filesystem::path& runs, std::size_t keep = kEndedRunsKept) noexcept;

}  // namespace adaptdl::sched
