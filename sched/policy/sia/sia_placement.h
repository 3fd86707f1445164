// Places Sia's chosen configurations on nodes. The result is deterministic.
#pragma once

#include <vector>

#include "policy/sia/sia_problem.h"

namespace adaptdl::sched::sia {

struct Placed {
  int configuration = -1;  // index into Job::configurations; -1 if the job gets none
  Placement placement;
  bool as_chosen = true;  // false if the chosen configuration did not fit and this is the best that did
};

// `chosen` holds the index of each job's configuration, or -1 for none. First, jobs that keep their placement are left
// in place. If a choice then does not fit, all jobs are also packed again, the largest first, each in its old place if
// that is still free, and the result with the lower cost is used. Jobs on several nodes are placed before others. Nodes
// that are not preemptible are preferred, then the fullest ones with enough room. Finally, every job without replicas,
// in the order of submission, gets its best configuration that still fits.
std::vector<Placed> place(const Model& model, const std::vector<int>& chosen);

}  // namespace adaptdl::sched::sia
