// A policy's problem as input to the search: jobs and nodes by index, demands by resource, and the current placements.
// The policy adds the values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policy/base/policy.h"
#include "policy/search/allocation_search.h"

namespace adaptdl::sched {

struct SearchFrame {
  // Jobs are in the order of the problem and have no values; nodes are sorted by name, with preemptible ones last. A
  // previous allocation is ignored if one of its nodes is gone or, for a job that is not pinned, if the job's limits no
  // longer allow it. A job without a previous allocation is not pinned, and neither is a job that no longer fits
  // alongside the jobs created before it.
  SearchProblem problem;
  std::vector<std::string> node_names;  // names of problem.nodes
  std::vector<std::string> resources;   // the names of the resources in `demand` and `capacity`
};

// `max_replicas` returns the policy's own limit for a job. It applies in addition to the job's limit, but does not go
// below the job's minimum.
SearchFrame make_search_frame(const Problem& problem, const std::function<int(const JobInfo&)>& max_replicas);

// For each job, returns the fraction of its dominant resource in the whole cluster that one replica takes. The fraction
// is 0 if the replica requests nothing, and infinite if it requests a resource that no node has.
std::vector<double> dominant_shares(const SearchProblem& problem);

// Returns a job's maximum number of replicas: twice the number that it was measured with, or one if it has not been
// measured.
int profiled_limit(const JobInfo& job);

// Returns whether the replicas of each node are next to each other.
bool side_by_side(const Allocation& allocation);

Allocation to_allocation(const SearchFrame& frame, const Placement& placement);

// Translates node names to indices, using `nodes`. Returns an empty placement if a node is gone, because the job then
// cannot continue.
Placement to_placement(const Allocation& allocation, const std::map<std::string_view, int>& nodes);

// Returns the amount of each type, in the order of `types`. Missing and negative amounts become 0.
std::vector<std::int64_t> amounts(const Resources& resources, const std::vector<std::string>& types);

// Returns how many replicas with this demand fit into `free`, or 0 if they request nothing.
std::int64_t room(const std::vector<std::int64_t>& demand, const std::vector<std::int64_t>& free);

}  // namespace adaptdl::sched
