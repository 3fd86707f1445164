#include "local/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "local/devices/cluster_relay.h"
#include "local/devices/machine_share.h"
#include "local/launch/attempt.h"
#include "local/launch/launch_signals.h"
#include "local/replica/local_host.h"

namespace adaptdl::sched {
namespace {

using Clock = std::chrono::steady_clock;

// Answers requests between two starts. Returns whether the end of the run was requested.
bool take_requests(LaunchContext& context) {
  bool end = false;
  if (context.control == nullptr) return end;
  for (RunRequest& request : context.control->take()) {
    if (request.kind == RunRequest::Kind::kStop || request.kind == RunRequest::Kind::kKill) {
      end = true;
      request.accept();
    } else if (request.kind == RunRequest::Kind::kShare) {
      context.set_share(request.share);
      request.accept();
    } else {
      request.refuse("its replicas are being started; try again in a moment");
    }
  }
  return end;
}

// Waits briefly for events other than those of replicas, and handles them. Returns false if the user requested the end
// of the run.
bool idle(LaunchContext& context) {
  const int control = context.control == nullptr ? -1 : context.control->fd();
  const int share = context.share == nullptr ? -1 : context.share->fd();
  pollfd polled[] = {{context.signals.fd(), POLLIN, 0},
                     {context.observer.output_fd(), POLLOUT, 0},
                     {control, POLLIN, 0},
                     {share, POLLIN, 0}};
  ::poll(polled, std::size(polled), 50);
  if (polled[1].revents != 0) context.observer.write_output();
  if (context.share != nullptr) context.share->take();
  context.host.read();
  for (const int signal_number : context.signals.take()) {
    if (signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP) return false;
  }
  if (take_requests(context)) return false;
  context.publish_device_time();
  context.observer.tick();
  return true;
}

// Waits before the next start. Returns false if the user requested the end of the run during the wait.
bool back_off(LaunchContext& context, std::chrono::milliseconds pause) {
  const auto until = Clock::now() + pause;
  while (Clock::now() < until) {
    if (!idle(context)) return false;
  }
  return true;
}

// Waits until the run has devices. If the agent allocates none within kFirstAllocation, the run continues without an
// allocation. Returns false if the user requested the end of the run during the wait.
bool wait_for_devices(LaunchContext& context) {
  if (context.share == nullptr) return true;
  const DeviceSource& share = *context.share;
  const auto until = Clock::now() + kFirstAllocation;
  std::string reported;
  while (!share.has_devices() && (share.must_wait() || Clock::now() < until)) {
    if (!idle(context)) return false;
    if (!share.must_wait() || share.reason() == reported) continue;
    reported = share.reason();
    context.observer.notice(reported);
    context.publish("waiting", reported);
    context.observer.started();
  }
  return true;
}

// Returns whether a failure that ended all replicas uses the restart budget. A replica that was killed from outside has
// not failed by itself, and may not fail the next time; one that ran out of memory probably will.
bool counts(const LaunchResult& result) {
  const auto& failure = result.outcome.first_failure;
  const ExitStatus killed{.signalled = true, .code = SIGKILL};
  return !failure || failure->status != killed || failure->out_of_memory;
}

std::string describe_restart(const LaunchResult& result, const RestartBudget& budget) {
  const std::string from = result.checkpoint ? fmt::format("from {}", result.checkpoint->path.filename().string())
                                             : "from the beginning, as there is no checkpoint";
  const auto& failure = result.outcome.first_failure;
  const bool late = result.outcome.verdict == Verdict::kGraceExpired;
  const std::string what = failure ? fmt::format("replica {} {}", failure->rank, describe_end(*failure))
                           : late  ? std::string("the replicas did not stop within the grace period")
                                   : std::string("the replicas stopped, but no new checkpoint was found");
  const std::string count = counts(result) ? fmt::format("restart {} of {}", budget.used(), budget.max())
                                           : std::string("not counted: killed from outside");
  return fmt::format("{}: restarting all replicas {} ({})", what, from, count);
}

void publish_restart(LaunchContext& context, const std::string& why, int restarts) {
  if (context.control == nullptr) return;
  RunStatus& status = context.control->status();
  status.restarts = restarts;
  // No replica is running now, and other runs may get the devices before the next replicas start.
  status.replicas = 0;
  status.devices.clear();
  context.publish("restarting", why);
}

void publish_end(LaunchContext& context, const LaunchResult& result) {
  if (context.control == nullptr) return;
  RunStatus& status = context.control->status();
  status.replicas = 0;
  status.ended = std::chrono::system_clock::now();
  status.exit_code = result.outcome.exit_code;
  switch (result.outcome.verdict) {
    case Verdict::kDone:
      return context.publish("done", "");
    case Verdict::kCheckpointed:
      return context.publish("stopped", "saved " + result.checkpoint->path.filename().string());
    case Verdict::kNothingSaved:
      return context.publish("stopped", "no new checkpoint saved");
    case Verdict::kGraceExpired:
      return context.publish("stopped", "killed after the grace period");
    case Verdict::kKilled:
      return context.publish("stopped", "killed");
    case Verdict::kNotStarted:
      return context.publish("stopped", "while waiting for devices");
    case Verdict::kFailed:
      const ReplicaEnd& first = *result.outcome.first_failure;
      return context.publish("failed", fmt::format("replica {} {}", first.rank, describe_end(first)));
  }
}

// Returns whether all replicas must be restarted after a failure. If so, the pause before the restart has already
// passed.
bool starts_after_failure(LaunchContext& context, const Attempt& attempt, const LaunchResult& result) {
  const auto& failure = result.outcome.first_failure;
  if (failure && context.budget.in_vain(*failure, attempt.trained())) {
    context.observer.notice("the program failed twice in the same way before its first step; not restarting");
    return false;
  }
  if (context.budget.max() == 0 || (counts(result) && !context.budget.spend())) return false;
  const std::string why = describe_restart(result, context.budget);
  context.observer.notice(why);
  publish_restart(context, why, result.restarts + 1);
  return back_off(context, context.budget.back_off(Clock::now()));
}

// Returns whether all replicas must be restarted because they were stopped to change their number.
bool starts_at_new_size(LaunchContext& context, const Attempt& attempt, const LaunchResult& result) {
  const Verdict verdict = result.outcome.verdict;
  // If nothing was trained, nothing is lost.
  const bool lossless = verdict == Verdict::kCheckpointed || (verdict == Verdict::kNothingSaved && !attempt.trained());
  if (!attempt.rescales() || !lossless) return false;
  context.restart_after = Clock::now() + kRestartEvery;
  const std::size_t replicas = context.size.target().devices.size();
  const std::string why =
      fmt::format("restarting with {} {}", counted(replicas, "replica"),
                  result.checkpoint ? "from " + result.checkpoint->path.filename().string() : "from the beginning");
  context.observer.notice(why);
  publish_restart(context, why, result.restarts + 1);
  return true;
}

LaunchResult run_to_end(LaunchContext& context) {
  CheckpointWatch& checkpoints = context.checkpoints;
  const int first = checkpoints.first_restart();
  for (LaunchResult result;; ++result.restarts) {
    // By the time of a restart, all devices may have been lost.
    if (!wait_for_devices(context)) {
      result.outcome = {Verdict::kNotStarted, kFailedExit, {}};
      result.stop_requested = true;
      return result;
    }
    checkpoints.mark();
    Attempt attempt(context, first + result.restarts);
    if (result.restarts == 0) context.observer.started();
    const AttemptEnd end = attempt.run();
    // If the last checkpoint was lost, an earlier one that was saved after the stop request must not hide that.
    const auto new_checkpoint = context.host.has_last_checkpoint() ? checkpoints.newest_since_mark() : std::nullopt;
    result.outcome = judge(end, new_checkpoint.has_value());
    result.ends = end.ends;
    result.stop_requested = attempt.stop_requested();
    result.progressed = result.progressed || attempt.trained() || new_checkpoint;
    result.checkpoint = new_checkpoint ? new_checkpoint : checkpoints.newest();
    const auto& failure = result.outcome.first_failure;
    result.last_lines = failure ? failure->last_lines : std::vector<std::string>();
    if (result.stop_requested) return result;
    if (starts_at_new_size(context, attempt, result)) continue;
    const Verdict verdict = result.outcome.verdict;
    // The replicas may have saved nothing, or their checkpoint was not copied to this machine or cannot be read now.
    const bool unsaved = verdict == Verdict::kGraceExpired || verdict == Verdict::kNothingSaved;
    const bool failed = verdict == Verdict::kFailed || (attempt.rescales() && unsaved);
    if (!failed || !starts_after_failure(context, attempt, result)) return result;
  }
}

// If there is no agent that divides the devices among runs, the run uses any devices that the plan allows.
std::unique_ptr<DeviceSource> share_machine(const LaunchPlan& plan, LaunchObserver& observer, const RunControl* control,
                                            RunSize& size, const DeviceTime& device_time) {
  try {
    const std::string name = control == nullptr ? plan.job_id : control->record().name();
    return std::make_unique<MachineShare>(plan, name, size, device_time);
  } catch (const Error& error) {
    observer.notice(fmt::format("warning: devices are not shared with other runs: {}", error.what()));
    return nullptr;
  }
}

}  // namespace

LaunchResult launch(const LaunchPlan& plan, LaunchObserver& observer, RunControl* control) {
  LaunchSignals signals;
  RunSize size(plan);
  DeviceTime device_time;
  std::unique_ptr<DeviceSource> share;
  std::unique_ptr<ReplicaHost> host;
  if (plan.relay) {
    auto relay = std::make_unique<ClusterRelay>(plan, size, device_time);
    host = std::make_unique<RemoteHost>(plan, observer, *relay);
    share = std::move(relay);
  } else {
    host = std::make_unique<LocalHost>(plan, observer);
  }
  if (control != nullptr) control->serve();
  std::optional<LocalSupervisor> supervisor;
  if (plan.nodes == 1)
    supervisor.emplace(plan.job_id, control == nullptr ? std::filesystem::path() : control->record().token_file(),
                       plan.relay ? plan.relay->address : "");
  CheckpointWatch checkpoints(plan.checkpoints);
  RestartBudget budget(plan.max_restarts);
  if (plan.shares_machine) share = share_machine(plan, observer, control, size, device_time);
  LaunchContext context{.plan = plan,
                        .observer = observer,
                        .signals = signals,
                        .host = *host,
                        .checkpoints = checkpoints,
                        .size = size,
                        .budget = budget,
                        .device_time = device_time,
                        .supervisor = supervisor ? &*supervisor : nullptr,
                        .control = control,
                        .share = share.get()};
  LaunchResult result = run_to_end(context);
  publish_end(context, result);
  return result;
}

}  // namespace adaptdl::sched
