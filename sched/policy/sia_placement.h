// Places the configurations that Sia chose on nodes. This is deterministic.
#pragma once

#include <vector>

#include "policy/sia_problem.h"

namespace adaptdl::sched::sia {

struct Placed {
  int configuration = -1;  // index into Job::configurations; -1 if the job gets none
  Placement placement;
  bool as_chosen = true;  // false if the chosen configuration did not fit and this is the best that did
};

// `chosen` holds the configuration of each job, -1 for none. At first, jobs that keep what they have are left in place.
// If a choice then does not fit, all jobs are also packed again, the largest first, each where it was if that is still
// free, and the result with the lower cost counts. Jobs on several nodes are placed before others. Nodes that are not
// preemptible are preferred, then the fullest that have room. Finally, every job without replicas, in the order of
// submission, gets the best of its configurations that still fits.
std::vector<Placed> place(const Model& model, const std::vector<int>& chosen);

}  // namespace adaptdl::sched::sia
