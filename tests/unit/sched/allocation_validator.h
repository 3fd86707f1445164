// Checks a decision against its problem, with nothing of the policies' own code.
#pragma once

#include <string>
#include <vector>

#include "policy/policy.h"

namespace adaptdl::sched {

// What a policy promises beside what every policy must.
struct Promises {
  bool profiled_limit = true;  // at most twice the replicas that a job was measured with, one, or its minimum
  bool separates = true;       // see Policy::separates_distributed_jobs
};

// What is wrong with the decision, a line each; empty if it respects every constraint:
//   - every job of the problem has an allocation, maybe empty, and a reason; no other job has one
//   - every name is that of a node; replicas of a node stand side by side
//   - no node gives more of a resource than it has; a job that asks for nothing gets nothing
//   - a job has none, or between its minimum and its maximum
//   - a job that may not be preempted keeps exactly what it has, if that and what the others like it have is possible
//   - a node has replicas of at most one distributed job that is not pinned, if that is promised
//   - the number of desired nodes is not negative, and that of the nodes unless there is a template
std::vector<std::string> violations(const Problem& problem, const Decision& decision, const Promises& promises = {});

}  // namespace adaptdl::sched
