// The launcher runs a program as the replicas of a job, from start to end.
//
// It starts the replicas, shows their output, forwards stop requests to them, changes their number while they run,
// replaces failed replicas, restarts all of them from their checkpoint as often as the plan allows, and leaves no
// process behind, even if the launcher itself is killed. docs/running.md describes its behavior for users.
//
// Threading: launch() handles the process's signals until it returns, and it forks. It must be called while the process
// has a single thread, unless the other threads block all signals. launch() itself starts such threads, but only after
// it has forked the guardian, which never calls exec.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "local/base/checkpoint_watch.h"
#include "local/base/launch_observer.h"
#include "local/base/launch_plan.h"
#include "local/record/run_control.h"
#include "local/replica/outcome.h"

namespace adaptdl::sched {

struct LaunchResult {
  Outcome outcome;
  std::vector<ReplicaEnd> ends;              // replicas of the last start, in the order in which they ended
  std::vector<std::string> last_lines;       // output of the replica that failed first
  int restarts = 0;                          // how many times all replicas were restarted
  bool stop_requested = false;               // the end of the run was requested
  bool progressed = false;                   // a replica trained, or a new checkpoint was saved, in any start
  std::optional<CheckpointNote> checkpoint;  // the checkpoint to continue from; new if the verdict is kCheckpointed
};

// Runs the plan. `control` publishes the status of the run and passes on requests to change it; if null, the run has no
// control socket. launch() calls control->serve() and publishes how the run ended, but leaves it to the caller to
// finish or discard `control`. Throws UsageError if the program cannot be executed, and Error if a process, pipe or log
// cannot be created, or if a replica cannot be killed. The failure of a replica is not an exception, but part of the
// result.
LaunchResult launch(const LaunchPlan& plan, LaunchObserver& observer, RunControl* control = nullptr);

}  // namespace adaptdl::sched
