// One start of all the replicas of this machine, until none is left.
//
// A loop over events in one thread. Its phases: running; stopping (asked to checkpoint, until the grace ends); failing
// (one failed, the others are given kFailureGrace); killing. Each has one deadline, and leads only to the ones after
// it.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "local/checkpoint_watch.h"
#include "local/exit_order.h"
#include "local/guardian.h"
#include "local/launch_observer.h"
#include "local/launch_plan.h"
#include "local/launch_signals.h"
#include "local/local_replica.h"
#include "local/out_of_memory.h"
#include "local/outcome.h"
#include "local/run_control.h"
#include "local/save_requests.h"

namespace adaptdl::sched {

// What all starts of a run share.
struct LaunchContext {
  const LaunchPlan& plan;
  LaunchObserver& observer;
  LaunchSignals& signals;
  Guardian& guardian;
  CheckpointWatch& checkpoints;
  RunControl* control = nullptr;  // null: nobody looks on
  // How often the user asked for an end: by SIGINT, SIGTERM or SIGHUP.
  int user_requests = 0;

  // Says to those who look on that the run is now in this state, and why.
  void publish(const std::string& state, const std::string& why);
};

class Attempt {
 public:
  // Starts the replicas. Throws UsageError if the program cannot be executed, and Error if the system refuses; none is
  // left then.
  Attempt(LaunchContext& context, int restarts);
  // Kills what is left, if run() did not return.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Waits until all replicas are gone, and says how that came. Throws Error if one cannot be killed.
  AttemptEnd run();

  // Whether somebody asked for the run's end, so that it is not to be started again.
  bool stop_requested() const noexcept { return stop_requested_; }
  std::vector<std::string> last_lines(int rank) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kRunning, kStopping, kFailing, kKilling };

  void wait_for_events();
  void handle_signal(int signal_number);
  void handle_requests();
  void handle(RunRequest request);
  void take_report(const LocalReplica& replica, const nlohmann::json& report);
  void take_ends();
  void handle_end(const ReplicaEnd& end);
  void wind_down();
  void check_deadline();
  void tick();

  // From now on, asks each replica to checkpoint and exit as soon as it can be asked. `why` begins the notice.
  void stop(const std::string& why);
  void fail();
  void kill_all();
  void enter(Phase phase, std::chrono::milliseconds limit);
  std::string remaining() const;
  bool all_gone() const;

  LaunchContext& context_;
  OomWatch oom_;
  SaveRequests saves_;
  ExitOrder exit_order_;
  std::vector<std::unique_ptr<LocalReplica>> replicas_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_ = Clock::time_point::max();
  AttemptEnd end_;
  bool stop_requested_ = false;
};

}  // namespace adaptdl::sched
