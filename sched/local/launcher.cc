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

// Waits before the next start. Returns false if the user asked for an end meanwhile.
bool back_off(LaunchContext& context, std::chrono::milliseconds pause) {
  const auto until = Clock::now() + pause;
  while (Clock::now() < until) {
    pollfd polled[] = {{context.signals.fd(), POLLIN, 0}, {context.observer.output_fd(), POLLOUT, 0}};
    ::poll(polled, 2, 50);
    if (polled[1].revents != 0) context.observer.write_output();
    for (const int signal_number : context.signals.take()) {
      if (signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP) return false;
    }
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

}  // namespace

LaunchResult launch(const LaunchPlan& plan, LaunchObserver& observer) {
  LaunchSignals signals;
  Guardian guardian;
  CheckpointWatch checkpoints(plan.checkpoints);
  LaunchContext context{
      .plan = plan, .observer = observer, .signals = signals, .guardian = guardian, .checkpoints = checkpoints};
  const int first = checkpoints.first_restart();
  auto pause = kFirstBackOff;
  for (LaunchResult result;; ++result.restarts) {
    Attempt attempt(context, first + result.restarts);
    const AttemptEnd end = attempt.run();
    const auto new_checkpoint = checkpoints.newest_since_mark();
    result.outcome = judge(end, new_checkpoint.has_value());
    result.ends = end.ends;
    result.checkpoint = new_checkpoint ? new_checkpoint : checkpoints.newest();
    if (result.outcome.first_failure) result.last_lines = attempt.last_lines(result.outcome.first_failure->rank);
    if (result.outcome.verdict != Verdict::kFailed || attempt.stop_requested() || result.restarts >= plan.max_restarts)
      return result;
    observer.notice(describe_restart(result.outcome, result.checkpoint, result.restarts + 1, plan.max_restarts));
    if (!back_off(context, pause)) return result;
    pause = std::min(pause * 2, kLongestBackOff);
  }
}

}  // namespace adaptdl::sched
