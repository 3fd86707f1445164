// RunRegistration maintains the record of a run that `adaptdl run` starts, and uses the record to fill in the missing
// parts of the run's plan.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "command/run/run_plan.h"
#include "local/launch/launcher.h"
#include "local/record/run_control.h"

namespace adaptdl::cli {

// `adaptdl ls` shows the run as active until the object is destroyed.
class RunRegistration {
 public:
  // Creates the record that the options request, and completes `plan` with directories for checkpoints and logs, and
  // with a unique job ID. Throws UsageError if an active run has the same name. If the record cannot be created, throws
  // Error if the run requires one; otherwise, warning() returns the reason.
  RunRegistration(const RunOptions& options, sched::LaunchPlan& plan);

  // Null if the run has no record.
  sched::RunControl* control() noexcept { return control_.get(); }
  const std::string& warning() const noexcept { return warning_; }
  // Returns "" if there is no record.
  std::string name() const { return control_ ? control_->record().name() : ""; }
  void set_resume(const std::string& command);

  // Returns the file for the notices of a run without a terminal. REQUIRES a record.
  std::filesystem::path notices() const { return control_->record().notices(); }

  // The caller must call ended() or failed() at the end of the run.
  //
  // Returns a line for the user if the run succeeded, but its checkpoints may still be needed and were kept, because
  // the run was asked to stop, or did not use the checkpoints of an earlier run.
  std::string ended(const sched::LaunchResult& result);
  // Reports that the launcher failed. A run whose replicas never started leaves no record.
  void failed(const std::string& why);

 private:
  void open(const std::filesystem::path& runs, const RunOptions& options, sched::LaunchPlan& plan);
  void remove_checkpoints(bool with_contents) noexcept;

  std::unique_ptr<sched::RunControl> control_;
  std::filesystem::path own_checkpoints_;  // empty if the user specified a directory
  bool continues_ = false;                 // an earlier run left something in own_checkpoints_
  std::string warning_;
};

}  // namespace adaptdl::cli
