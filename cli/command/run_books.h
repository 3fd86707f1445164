// What `adaptdl run` keeps of a run: its record, and what the plan takes from it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "command/run_plan.h"
#include "local/launcher.h"
#include "local/run_control.h"

namespace adaptdl::cli {

// The run as it can be found by `adaptdl ls`. It ends with the object.
class RunBooks {
 public:
  // Makes the record that the options ask for, and puts into `plan` what it was not given: the directories of
  // checkpoints and logs, and a name that no other run has. Throws UsageError if a living run has the name, and
  // Error if there is no place for a record and the run cannot do without one; where it can, warning() says so.
  RunBooks(const RunOptions& options, sched::LaunchPlan& plan);

  // None: the run leaves no record.
  sched::RunControl* control() noexcept { return control_.get(); }
  const std::string& warning() const noexcept { return warning_; }
  // Empty if there is no record.
  std::string name() const { return control_ ? control_->record().name() : ""; }
  void set_resume(const std::string& command);

  // Where a run without a terminal leaves its notices. REQUIRES a record.
  std::filesystem::path notices() const { return control_->record().notices(); }

  // To be called at the end, with one of these.
  void ended(const sched::LaunchResult& result);
  // The launcher could not do its work. A run whose replicas never started leaves nothing behind.
  void failed(const std::string& why);

 private:
  void open(const std::filesystem::path& runs, const RunOptions& options, sched::LaunchPlan& plan);
  void remove_checkpoints(bool done) noexcept;

  std::unique_ptr<sched::RunControl> control_;
  std::filesystem::path own_checkpoints_;  // empty: they are the user's
  std::string warning_;
};

}  // namespace adaptdl::cli
