// Runs a program as the replicas of a job on this machine, from start to end.
//
// The launcher starts the replicas, shows what they say, passes a request to stop on to them, changes their number
// while they go on, replaces those that fail, starts all again from their checkpoint as often as the plan allows, and
// leaves nothing behind, even when it is killed itself. How it looks from outside: docs/running.md.
//
// Threading: launch() takes over the signals of the process until it returns, and forks: it is to be called while there
// is one thread, unless others have all signals blocked. It starts such others itself, once the guardian, which never
// becomes another program, has been forked.
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
  std::optional<CheckpointNote> checkpoint;  // to go on from; new if the verdict is kCheckpointed
};

// Runs the plan. `control`: whom to tell how the run is getting on, and who may ask for changes; null: nobody. It is
// served from here on, and published to hold how the run ended; its end is the caller's. Throws UsageError if the
// program cannot be executed, and Error if the system refuses processes, pipes or a log, or if a replica cannot be
// killed. What the replicas do is no exception, but in the result.
LaunchResult launch(const LaunchPlan& plan, LaunchObserver& observer, RunControl* control = nullptr);

}  // namespace adaptdl::sched
