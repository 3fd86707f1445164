// Functions shared by the policies with queues (FIFO, Tiresias, Optimus): the order of jobs, how many replicas a user
// requested, and which jobs keep their allocations.
#pragma once

#include <string>
#include <vector>

#include "policy/base/free_nodes.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

// Returns the jobs by arrival. Jobs that arrived at the same time are in the order of the problem.
std::vector<const JobInfo*> by_arrival(const Problem& problem);

// Returns how many replicas a job gets under a policy that does not adapt: the number that its user requested, within
// its bounds and kMaxReplicasPerJob, or 0 if these contradict each other.
int fixed_replicas(const JobInfo& job);

// Returns a job's current allocation, which may be empty.
const Allocation& previous_allocation(const Problem& problem, const JobInfo& job);

// Pinned jobs keep their allocations, except those that no longer fit. The decision contains only pinned jobs, with
// their reasons, and keeps the number of nodes.
Decision keep_pinned(const Problem& problem, FreeNodes& free);

// Returns a text such as "8 replicas on 2 nodes".
std::string describe(const Allocation& allocation);

// Explains why a job that needs `replicas` replicas has none. If `replicas` is 0, the job's bounds contradict each
// other or kMaxReplicasPerJob. Otherwise, there is not enough room now, or would not be even on `empty`, which contains
// all nodes without any jobs.
std::string shortage_reason(const FreeNodes& empty, const JobInfo& job, int replicas);

}  // namespace adaptdl::sched
