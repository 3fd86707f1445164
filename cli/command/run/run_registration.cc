#include "command/run/run_registration.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/private_files.h"
#include "local/base/checkpoint_watch.h"
#include "local/record/run_directory.h"

namespace adaptdl::cli {
namespace fs = std::filesystem;
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

sched::RunRecord make_record(const fs::path& runs, const RunOptions& options, const sched::LaunchPlan& plan) {
  // The machines of a job may share a home directory, so their records must have different names.
  const std::string node = plan.nodes > 1 ? fmt::format("-node{}", plan.node_rank) : "";
  if (!options.name.empty()) return sched::RunRecord::named(runs, options.name + node);
  return sched::RunRecord::unnamed(runs, plain_name(plan.arguments.front()) + node);
}

sched::RunStatus first_status(const sched::RunRecord& record, const sched::LaunchPlan& plan) {
  sched::RunStatus status;
  status.name = record.name();
  status.min = plan.min_replicas;
  status.wanted = status.max = plan.replicas;
  status.started = std::chrono::system_clock::now();
  status.pid = ::getpid();
  status.host = host_name();
  status.checkpoints = plan.checkpoints ? plan.checkpoints->string() : "";
  status.logs = plan.logs->string();
  status.command = plan.arguments;
  return status;
}

}  // namespace

RunRegistration::RunRegistration(const RunOptions& options, sched::LaunchPlan& plan) {
  const bool own_checkpoints = !plan.checkpoints && !options.no_checkpoint;
  const bool needed = own_checkpoints || options.detach || !options.name.empty();
  try {
    open(sched::runs_directory(), options, plan);
  } catch (const Error& error) {
    if (needed) throw;
    warning_ = fmt::format("warning: `adaptdl ls` will not find this run: {}", error.what());
  }
}

void RunRegistration::open(const fs::path& runs, const RunOptions& options, sched::LaunchPlan& plan) {
  sched::prune_runs(runs);
  sched::RunRecord record = make_record(runs, options, plan);
  std::error_code error;
  if (!plan.checkpoints && !options.no_checkpoint) {
    own_checkpoints_ = record.checkpoints();
    create_private_directories(own_checkpoints_);
    continues_ = !fs::is_empty(own_checkpoints_, error);
    plan.checkpoints = own_checkpoints_;
    // The time in the record's name distinguishes the job from other runs of the same program.
    if (options.name.empty()) plan.job_id = "local/" + record.name();
  }
  // The logs of an earlier run with this name are kept only if this run continues from that run's checkpoint.
  if (record.taken_over() && !sched::CheckpointWatch(plan.checkpoints).newest()) {
    fs::remove_all(record.logs(), error);
    fs::remove(record.notices(), error);
  }
  const bool own_logs = !plan.logs;
  if (own_logs) plan.logs = record.logs();
  try {
    sched::RunStatus status = first_status(record, plan);
    control_ = std::make_unique<sched::RunControl>(std::move(record), std::move(status));
  } catch (...) {
    if (own_logs) plan.logs.reset();
    throw;
  }
}

void RunRegistration::set_resume(const std::string& command) {
  if (control_) control_->status().resume = command;
}

std::string RunRegistration::ended(const sched::LaunchResult& result) {
  const bool done = result.outcome.verdict == sched::Verdict::kDone;
  const bool unused = continues_ && !result.progressed;
  remove_checkpoints(done && !result.stop_requested && !unused);
  if (control_) control_->finish();
  std::error_code error;
  if (!done || own_checkpoints_.empty() || !fs::exists(own_checkpoints_, error)) return "";
  return fmt::format("adaptdl: kept '{}', because {}; to remove it: adaptdl delete {}\n",
                     printable(own_checkpoints_.string()),
                     result.stop_requested ? "the run was asked to stop" : "the run reported no training", name());
}

void RunRegistration::failed(const std::string& why) {
  remove_checkpoints(false);
  if (!control_) return;
  sched::RunStatus& status = control_->status();
  const bool began = status.state != "starting";
  status.state = "failed";
  status.why = why;
  status.replicas = 0;
  status.ended = std::chrono::system_clock::now();
  status.exit_code = 1;
  if (began)
    control_->finish();
  else
    control_->discard();
}

// Removes the run's own checkpoint directory: with all that it contains, or only if it is empty.
void RunRegistration::remove_checkpoints(bool with_contents) noexcept {
  if (own_checkpoints_.empty()) return;
  std::error_code ignored;
  if (with_contents)
    fs::remove_all(own_checkpoints_, ignored);
  else
    fs::remove(own_checkpoints_, ignored);
}

}  // namespace adaptdl::cli
