#include "local/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "local/attempt.h"
#include "local/guardian.h"
#include "local/launch_signals.h"

namespace adaptdl::sched {
namespace {

using Clock = std::chrono::steady_clock;

// Answers what is asked between two starts. Returns whether the end is asked for.
bool take_requests(LaunchContext& context) {
  bool end = false;
  if (context.control == nullptr) return end;
  for (RunRequest& request : context.control->take()) {
    if (request.kind == RunRequest::Kind::kStop || request.kind == RunRequest::Kind::kKill) {
      end = true;
      request.accept();
    } else {
      request.refuse("its replicas are being started again; ask again in a moment");
    }
  }
  return end;
}

// Waits before the next start. Returns false if the user asked for an end meanwhile.
bool back_off(LaunchContext& context, std::chrono::milliseconds pause) {
  const auto until = Clock::now() + pause;
  while (Clock::now() < until) {
    const int control = context.control == nullptr ? -1 : context.control->fd();
    pollfd polled[] = {
        {context.signals.fd(), POLLIN, 0}, {context.observer.output_fd(), POLLOUT, 0}, {control, POLLIN, 0}};
    ::poll(polled, 3, 50);
    if (polled[1].revents != 0) context.observer.write_output();
    for (const int signal_number : context.signals.take()) {
      if (signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP) return false;
    }
    if (take_requests(context)) return false;
    context.observer.tick();
  }
  return true;
}

std::string describe_restart(const Outcome& outcome, const std::optional<CheckpointNote>& checkpoint, int restart,
                             int max) {
  const std::string from = checkpoint ? fmt::format("from {}", checkpoint->path.filename().string())
                                      : "from the beginning, as there is no checkpoint";
  return fmt::format("replica {} {}: starting all again {} (restart {} of {})", outcome.first_failure->rank,
                     describe_end(*outcome.first_failure), from, restart, max);
}

void publish_restart(LaunchContext& context, const std::string& why, int restarts) {
  if (context.control == nullptr) return;
  context.control->status().restarts = restarts;
  context.publish("restarting", why);
}

// Publishes how the run ended.
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
      return context.publish("stopped", "with " + result.checkpoint->path.filename().string());
    case Verdict::kNothingSaved:
      return context.publish("stopped", "without a new checkpoint");
    case Verdict::kGraceExpired:
      return context.publish("stopped", "killed when the grace was over");
    case Verdict::kKilled:
      return context.publish("stopped", "killed");
    case Verdict::kFailed:
      const ReplicaEnd& first = *result.outcome.first_failure;
      return context.publish("failed", fmt::format("replica {} {}", first.rank, describe_end(first)));
  }
}

LaunchResult run_to_end(LaunchContext& context) {
  const LaunchPlan& plan = context.plan;
  CheckpointWatch& checkpoints = context.checkpoints;
  const int first = checkpoints.first_restart();
  auto pause = kFirstBackOff;
  for (LaunchResult result;; ++result.restarts) {
    Attempt attempt(context, first + result.restarts);
    if (result.restarts == 0) context.observer.started();
    const AttemptEnd end = attempt.run();
    const auto new_checkpoint = checkpoints.newest_since_mark();
    result.outcome = judge(end, new_checkpoint.has_value());
    result.ends = end.ends;
    result.checkpoint = new_checkpoint ? new_checkpoint : checkpoints.newest();
    if (result.outcome.first_failure) result.last_lines = attempt.last_lines(result.outcome.first_failure->rank);
    if (result.outcome.verdict != Verdict::kFailed || attempt.stop_requested() || result.restarts >= plan.max_restarts)
      return result;
    const std::string why = describe_restart(result.outcome, result.checkpoint, result.restarts + 1, plan.max_restarts);
    context.observer.notice(why);
    publish_restart(context, why, result.restarts + 1);
    if (!back_off(context, pause)) return result;
    pause = std::min(pause * 2, kLongestBackOff);
  }
}

}  // namespace

LaunchResult launch(const LaunchPlan& plan, LaunchObserver& observer, RunControl* control) {
  LaunchSignals signals;
  Guardian guardian;
  if (control != nullptr) control->serve();
  CheckpointWatch checkpoints(plan.checkpoints);
  LaunchContext context{.plan = plan,
                        .observer = observer,
                        .signals = signals,
                        .guardian = guardian,
                        .checkpoints = checkpoints,
                        .control = control};
  LaunchResult result = run_to_end(context);
  publish_end(context, result);
  return result;
}

}  // namespace adaptdl::sched
