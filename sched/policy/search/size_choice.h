// Chooses the best number of replicas for each job as if only the total demand mattered. This is a knapsack problem
// with one choice per job, which dynamic programming solves exactly. The solution ignores which nodes the replicas are
// on, so if all replicas have the same demand, its total value is an upper bound on the value of any allocation.
#pragma once

#include <vector>

#include "policy/search/allocation_search.h"

namespace adaptdl::sched {

struct SizeChoice {
  int replicas = 0;
  bool keep = false;  // whether the previous allocation stays unchanged
  double value = 0;
};

// Returns the choice for each job. Pinned jobs keep their allocations.
std::vector<SizeChoice> choose_sizes(const SearchProblem& problem);

}  // namespace adaptdl::sched
