// Finds the best allocation of a small problem by exhaustive search, for any objective that is a sum over jobs.
#pragma once

#include <functional>
#include <vector>

#include "policy/base/policy.h"

namespace adaptdl::sched {

// Number of replicas on each node of the problem.
using Row = std::vector<int>;

// Tries all allocations that give each job either no replicas or between its minimum and `max_replicas`, such that all
// resources suffice, non-preemptible jobs stay where they are, and no node has more than one distributed job. Returns
// the largest sum of `value(job, row)`. Slow: suitable for up to 4 jobs on 4 nodes of a few GPUs. REQUIRES that the
// previous allocations are possible.
double best_by_trying_all(const Problem& problem, const std::function<int(const JobInfo&)>& max_replicas,
                          const std::function<double(const JobInfo&, const Row&)>& value);

Row row_of(const Problem& problem, const Allocation& allocation);

}  // namespace adaptdl::sched
