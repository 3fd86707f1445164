// The best allocation of a small problem by trying all, for any objective that is a sum over jobs.
#pragma once

#include <functional>
#include <vector>

#include "policy/policy.h"

namespace adaptdl::sched {

// Replicas on each node of the problem.
using Row = std::vector<int>;

// Tries every way to give each job none or min to `most` replicas that keeps within all resources, pins what is pinned
// and has at most one distributed job on a node. Returns the largest sum of `value(job, row)`. Slow: up to 4 jobs on 4
// nodes of a few GPUs. REQUIRES previous allocations that are possible.
double best_by_trying_all(const Problem& problem, const std::function<int(const JobInfo&)>& most,
                          const std::function<double(const JobInfo&, const Row&)>& value);

Row row_of(const Problem& problem, const Allocation& allocation);

}  // namespace adaptdl::sched
