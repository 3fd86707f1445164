// One start of all the replicas of this machine, until none is left.
//
// A loop over events in one thread. Its phases: running (in which the replicas may become others, see Membership);
// stopping (asked to checkpoint, until the grace ends); failing (one failed, the others are given kFailureGrace);
// killing. Each has one deadline, and leads only to the ones after it.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "local/launch_context.h"
#include "local/local_replica.h"
#include "local/out_of_memory.h"
#include "local/outcome.h"
#include "local/replica_set.h"
#include "local/run_control.h"
#include "local/save_requests.h"

namespace adaptdl::sched {

class Attempt {
 public:
  // Starts the replicas; what they save from then on is new if the context's checkpoints were marked. Throws UsageError
  // if the program cannot be executed, and Error if the system refuses; none is left then.
  Attempt(LaunchContext& context, int restarts);
  // Kills what is left, if run() did not return.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Waits until all replicas are gone, and says how that came. Throws Error if one cannot be killed.
  AttemptEnd run();

  // Whether somebody asked for the run's end, so that it is not to be started again.
  bool stop_requested() const noexcept { return stop_requested_; }
  // Whether all were asked to stop so as to be started again with another number of replicas.
  bool rescales() const noexcept { return rescales_; }
  // Whether any of them trained, as far as they say.
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
  void take_report(const LocalReplica& replica, const nlohmann::json& report);
  void take_ends();
  void handle_end(const ReplicaEnd& end);
  void wind_down();
  void check_deadline();
  void tick();

  // Lets the membership change as it is to, and says what has.
  void follow_membership();
  void publish_membership();
  // Stops all with a checkpoint, to be started again with other replicas, if all of them can be asked to.
  void rescale(const std::string& change);
  // From now on, asks each replica to checkpoint and exit as soon as it can be asked. `why` begins the notice.
  void stop(const std::string& why);
  void save_and_fail(const ReplicaEnd& end);
  void fail();
  void kill_all();
  void enter(Phase phase, std::chrono::milliseconds limit);
  std::string remaining() const;

  LaunchContext& context_;
  OomWatch oom_;
  SaveRequests saves_;
  ReplicaSet replicas_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_ = Clock::time_point::max();
  AttemptEnd end_;
  bool stop_requested_ = false;
  bool rescales_ = false;
  bool unwilling_said_ = false;             // that it cannot be asked to stop with a checkpoint
  std::optional<ReplicaEnd> last_failure_;  // of those that were survived
};

}  // namespace adaptdl::sched
