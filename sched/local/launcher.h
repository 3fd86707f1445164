// Runs a program as the replicas of a job on this machine, from start to end.
//
// The launcher starts the replicas, shows what they say, passes a request to stop on to them, ends all when one fails,
// starts them again from their checkpoint as often as the plan allows, and leaves nothing behind, even when it is
// killed itself. How it looks from outside: docs/running.md.
//
// Threading: launch() needs a process with one thread, and takes over its signals until it returns. The RunControl's
// thread, which it starts, touches neither signals nor replicas.
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
  int restarts = 0;                          // how often the replicas were started again
  std::optional<CheckpointNote> checkpoint;  // to go on from; new if the verdict is kCheckpointed
};

// Runs the plan. `control`: whom to tell how the run is getting on, and who may ask for changes; null: nobody. It is
// served from here on, and published to hold how the run ended; its end is the caller's. Throws UsageError if the
// program cannot be executed, and Error if the system refuses processes, pipes or a log, or if a replica cannot be
// killed. What the replicas do is no exception, but in the result.
LaunchResult launch(const LaunchPlan& plan, LaunchObserver& observer, RunControl* control = nullptr);

}  // namespace adaptdl::sched
