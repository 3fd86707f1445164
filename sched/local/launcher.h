// The launcher runs a program as the replicas of a job on this machine, from start to end.
//
// It starts the replicas, shows their output, forwards stop requests to them, changes their number while they run,
// replaces those that fail, starts all of them again from their checkpoint as often as the plan allows, and leaves
// nothing behind, even when it is killed itself. docs/running.md describes its behavior for users.
//
// Threading: launch() handles the signals of the process until it returns, and forks. It must be called while there is
// only one thread, unless the other threads have all signals blocked. It starts such threads itself, after it has
// forked the guardian, which never executes another program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "local/checkpoint_watch.h"
#include "local/launch_observer.h"
#include "local/launch_plan.h"
#include "local/outcome.h"
#include "local/run_control.h"

namespace adaptdl::sched {

struct LaunchResult {
  Outcome outcome;
  std::vector<ReplicaEnd> ends;              // of the last start, in the order in which they ended
  std::vector<std::string> last_lines;       // of the replica that failed first
  int restarts = 0;                          // how often all replicas were started again
  std::optional<CheckpointNote> checkpoint;  // to continue from; new if the verdict is kCheckpointed
};

// Runs the plan. `control` publishes the status of the run and passes on requests to change it; null: neither is
// possible. launch() calls its serve() and publishes how the run ended; finishing it is up to the caller. Throws
// UsageError if the program cannot be executed, and Error if the system refuses processes, pipes or a log, or if a
// replica cannot be killed. How the replicas end is not an exception, but part of the result.
LaunchResult launch(const LaunchPlan& plan, LaunchObserver& observer, RunControl* control = nullptr);

}  // namespace adaptdl::sched
