// What the policies with queues (FIFO, Tiresias, Optimus) have in common: who comes first, how many replicas a user
// asked for, and who keeps what it has.
#pragma once

#include <string>
#include <vector>

#include "policy/free_nodes.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// The jobs by arrival; of those of one time, in the order of the problem.
std::vector<const JobInfo*> by_arrival(const Problem& problem);

// How many replicas a job gets under a policy that does not adapt: what its user asked for, within its bounds and
// kMostReplicas. 0 if they exclude each other.
int fixed_replicas(const JobInfo& job);

// What a job has. Empty if nothing.
const Allocation& previous_allocation(const Problem& problem, const JobInfo& job);

// Gives pinned jobs what they have, as far as it is still there, and writes the reason. Others are left out of the
// decision. The decision has no wish for another number of nodes.
Decision keep_pinned(const Problem& problem, FreeNodes& free);

// "8 replicas on 2 nodes".
std::string describe(const Allocation& allocation);

// Why a job that needs so many replicas has none: its bounds exclude each other or kMostReplicas (0 replicas), or there
// is no room for them, not even on `empty`, which is all nodes while they are, or not now.
std::string why_no_room(const FreeNodes& empty, const JobInfo& job, int replicas);

}  // namespace adaptdl::sched
