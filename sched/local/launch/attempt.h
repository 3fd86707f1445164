// An Attempt runs all replicas of a launcher once, from their start until none is left.
//
// It is a single-threaded event loop with these phases: running (the membership may change; see Membership), stopping
// (the replicas were asked to checkpoint, and must exit within the grace period), failing (a replica failed, and the
// others must exit within kFailureGrace), and killing. Every phase except the first has a deadline, and a phase can
// only be followed by a later one.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "local/launch/launch_context.h"
#include "local/launch/replica_set.h"
#include "local/record/run_control.h"
#include "local/record/save_requests.h"
#include "local/replica/outcome.h"

namespace adaptdl::sched {

class Attempt {
 public:
  // Starts the replicas. Their checkpoints are recognized as new only if context.checkpoints.mark() has been called.
  // Throws UsageError if the program cannot be executed, and Error if a system call fails; no replica is left in either
  // case.
  Attempt(LaunchContext& context, int restarts);
  // Kills the remaining replicas if run() has not returned.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Waits until all replicas are gone, and returns how they ended. A replica that cannot be killed is left behind if
  // the run ends on its own or by a request to stop; otherwise, throws Error.
  AttemptEnd run();

  // Returns whether the end of the run was requested, in which case the replicas must not be started again.
  bool stop_requested() const noexcept { return stop_requested_; }
  // Returns whether all replicas were asked to stop so that the run can restart with a different number of replicas.
  bool rescales() const noexcept { return rescales_; }
  // Returns whether any replica has reported training progress.
  bool trained() const noexcept { return replicas_.trained(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kRunning, kStopping, kFailing, kKilling };

  void wait_for_events();
  void handle_signal(int signal_number);
  void hear_share();
  void handle_requests();
  void handle(RunRequest request);
  void resize(RunRequest request);
  void take_report(const Replica& replica, const nlohmann::json& report);
  void take_ends();
  void handle_end(const ReplicaEnd& end);
  void check_deadline();
  void tick();

  // Applies and publishes membership changes.
  void follow_membership();
  void publish_membership();
  // If every replica can be asked to stop, stops all of them with a checkpoint so that the run can restart at its new
  // size.
  void rescale(const std::string& change);
  // From now on, asks each replica to checkpoint and exit as soon as it can handle the request. The notice begins with
  // `why`.
  void stop(const std::string& why);
  void save_and_fail(const ReplicaEnd& end);
  void fail();
  void kill_all();
  void enter(Phase phase, std::chrono::milliseconds limit);
  bool leaves_rest_behind() const;
  // Names the replicas whose main process has not ended.
  std::string remaining() const;
  // Returns the error for replicas of which a process is still running after SIGKILL.
  std::string still_running() const;

  LaunchContext& context_;
  SaveRequests saves_;
  ReplicaSet replicas_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_ = Clock::time_point::max();
  AttemptEnd end_;
  bool stop_requested_ = false;
  bool rescales_ = false;
  bool reported_unwilling_ = false;         // the user was notified that the program cannot checkpoint and stop
  std::optional<ReplicaEnd> last_failure_;  // the last failure that the run survived
};

}  // namespace adaptdl::sched
