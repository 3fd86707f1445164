// RunBooks maintains the record of a run of `adaptdl run`, and completes the plan of the run from it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "command/run_plan.h"
#include "local/launcher.h"
#include "local/run_control.h"

namespace adaptdl::cli {

// `adaptdl ls` shows the run as active until the object is destroyed.
class RunBooks {
 public:
  // Creates the record that the options ask for, and completes `plan` with the directories of checkpoints and logs, and
  // a job id that no other run has. Throws UsageError if an active run has the name, and Error if the run needs a
  // record that cannot be created; if it does not need one, warning() has the reason.
  RunBooks(const RunOptions& options, sched::LaunchPlan& plan);

  // Null if the run leaves no record.
  sched::RunControl* control() noexcept { return control_.get(); }
  const std::string& warning() const noexcept { return warning_; }
  // Returns "" without a record.
  std::string name() const { return control_ ? control_->record().name() : ""; }
  void set_resume(const std::string& command);

  // Returns the file for the notices of a run without a terminal. REQUIRES a record.
  std::filesystem::path notices() const { return control_->record().notices(); }

  // One of these must be called at the end of the run.
  void ended(const sched::LaunchResult& result);
  // Reports that the launcher failed. A run whose replicas never started leaves no record.
  void failed(const std::string& why);

 private:
  void open(const std::filesystem::path& runs, const RunOptions& options, sched::LaunchPlan& plan);
  void remove_checkpoints(bool done) noexcept;

  std::unique_ptr<sched::RunControl> control_;
  std::filesystem::path own_checkpoints_;  // empty if they are the user's
  std::string warning_;
};

}  // namespace adaptdl::cli
