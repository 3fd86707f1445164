// Where Sia's choices go: configurations onto nodes.
//
// Threading: free of state. Deterministic.
#pragma once

#include <vector>

#include "policy/sia_problem.h"

namespace adaptdl::sched::sia {

struct Placed {
  int configuration = -1;  // of the job; -1: it has none
  Placement placement;
  bool as_chosen = true;  // false: what was chosen for it found no room, and this is the best that did
};

// `chosen`: the configuration of each job, -1 for none. Two ways are tried, and the one with the lower cost is taken:
// jobs that keep what they have stay where they are; or all are packed anew, the largest first, each where it was if
// that is still free. Whole nodes are filled first, then single ones, in each case the fullest that have room. Then
// every job without replicas, in the order of submission, gets the best of its configurations that still fits.
std::vector<Placed> place(const Model& model, const std::vector<int>& chosen);

}  // namespace adaptdl::sched::sia
