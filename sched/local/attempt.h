// An Attempt is one start of all the replicas of this machine, until none is left.
//
// It is an event loop in one thread, with these phases: running (in which the membership may change, see Membership);
// stopping (the replicas were asked to checkpoint, and have until the end of the grace); failing (one failed, and the
// others have kFailureGrace to end); killing. Each later phase has one deadline, and each leads only to those after it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "local/launch_context.h"
#include "local/outcome.h"
#include "local/replica_set.h"
#include "local/run_control.h"
#include "local/save_requests.h"

namespace adaptdl::sched {

class Attempt {
 public:
  // Starts the replicas. What they save is recognized as new if the context's checkpoints were marked before. Throws
  // UsageError if the program cannot be executed, and Error if the system refuses; no replica is left then.
  Attempt(LaunchContext& context, int restarts);
  // Kills the replicas that are left if run() did not return.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Waits until all replicas are gone, and returns how they ended. Throws Error if one cannot be killed.
  AttemptEnd run();

  // Returns whether the end of the run was requested, so that it must not be started again.
  bool stop_requested() const noexcept { return stop_requested_; }
  // Returns whether all replicas were asked to stop in order to be started again with another number of them.
  bool rescales() const noexcept { return rescales_; }
  // Returns whether any replica trained, as far as they report it.
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

  // Carries out changes of the membership, and publishes them.
  void follow_membership();
  void publish_membership();
  // Stops all replicas with a checkpoint, to be started again with others, if all of them can be asked to stop.
  void rescale(const std::string& change);
  // From now on, asks each replica to checkpoint and exit as soon as it can be asked. `why` begins the notice.
  void stop(const std::string& why);
  void save_and_fail(const ReplicaEnd& end);
  void fail();
  void kill_all();
  void enter(Phase phase, std::chrono::milliseconds limit);
  std::string remaining() const;

  LaunchContext& context_;
  SaveRequests saves_;
  ReplicaSet replicas_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_ = Clock::time_point::max();
  AttemptEnd end_;
  bool stop_requested_ = false;
  bool rescales_ = false;
  bool unwilling_said_ = false;             // the user was notified that it cannot stop with a checkpoint
  std::optional<ReplicaEnd> last_failure_;  // that the run survived
};

}  // namespace adaptdl::sched
