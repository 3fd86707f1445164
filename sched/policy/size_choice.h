// How many replicas each job would best have if only the sum of what they take counted: a knapsack with one choice a
// job, solved exactly by dynamic programming. It ignores which nodes the replicas are on, so where every replica takes
// the same, its value is an upper bound of what an allocation can reach.
#pragma once

#include <vector>

#include "policy/allocation_search.h"

namespace adaptdl::sched {

struct SizeChoice {
  int replicas = 0;
  bool keep = false;  // the previous allocation as it is
  double value = 0;
};

// Of each job. Pinned ones keep theirs.
std::vector<SizeChoice> choose_sizes(const SearchProblem& problem);

}  // namespace adaptdl::sched
