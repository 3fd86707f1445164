// Checks a decision against its problem, without using the policies' code.
#pragma once

#include <string>
#include <vector>

#include "policy/base/policy.h"

namespace adaptdl::sched {

// Promises that a policy makes in addition to those that every policy must keep.
struct Promises {
  // A job has no more replicas than the largest of 1, its minimum, and twice the number it was profiled with.
  bool profiled_limit = true;
  bool separates = true;  // see Policy::separates_distributed_jobs
};

// Returns the violated constraints, one per line; empty if there are none. The constraints are:
//   - Every job of the problem has an allocation, possibly empty, and a reason; no other job has an allocation.
//   - Every name is the name of a node, and replicas on the same node are adjacent.
//   - The replicas on a node do not exceed its resources; a job that requests no resource has no replicas.
//   - The number of replicas of a job is zero, or between its minimum and its maximum.
//   - Non-preemptible jobs keep exactly their previous allocations if those are possible together.
//   - A node has replicas of at most one distributed job that is not pinned, if the policy promises that.
//   - The desired number of nodes is within its limits; without a template, it is the current number.
std::vector<std::string> violations(const Problem& problem, const Decision& decision, const Promises& promises = {});

}  // namespace adaptdl::sched
