// What the policies with queues (FIFO, Tiresias, Optimus) have in common: the order of jobs, how many replicas a user
// requested, and which jobs keep what they have.
#pragma once

#include <string>
#include <vector>

#include "policy/free_nodes.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// Returns the jobs by arrival. Jobs that arrived at the same time are in the order of the problem.
std::vector<const JobInfo*> by_arrival(const Problem& problem);

// Returns how many replicas a job gets under a policy that does not adapt: what its user requested, within its bounds
// and kMostReplicas, or 0 if these contradict each other.
int fixed_replicas(const JobInfo& job);

// Returns what a job has now, which may be empty.
const Allocation& previous_allocation(const Problem& problem, const JobInfo& job);

// Gives pinned jobs what they have, or nothing if that no longer exists, and writes their reasons. The decision does
// not contain other jobs, and it keeps the number of nodes.
Decision keep_pinned(const Problem& problem, FreeNodes& free);

// Returns a text such as "8 replicas on 2 nodes".
std::string describe(const Allocation& allocation);

// Explains why a job that needs `replicas` has none. If `replicas` is 0, its bounds contradict each other or
// kMostReplicas. Otherwise there is no room now, or not even on `empty`, which is all nodes without any jobs.
std::string why_no_room(const FreeNodes& empty, const JobInfo& job, int replicas);

}  // namespace adaptdl::sched
