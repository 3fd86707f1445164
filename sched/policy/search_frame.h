// A policy's problem in the terms of the search: jobs and nodes by index, demands by resource, what is placed now. The
// policy adds the values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policy/allocation_search.h"
#include "policy/policy.h"

namespace adaptdl::sched {

struct SearchFrame {
  // Jobs as in the problem, without values; nodes with those that may be preempted last, then by name. A previous
  // allocation that is no longer possible (a node is gone, the job's limits changed) counts as none, and a job with it
  // as not pinned. Nor are jobs pinned that no longer fit beside those that were created before.
  SearchProblem problem;
  std::vector<std::string> node_names;  // of problem.nodes
  std::vector<std::string> resources;   // what the amounts in `demand` and `capacity` are of, by name
};

// `max_replicas` says how many replicas the policy would give a job at most, below the job's own limit.
SearchFrame make_search_frame(const Problem& problem, const std::function<int(const JobInfo&)>& max_replicas);

// The part of the scarcest resource of all nodes together that one replica takes, by job. 0 if it takes nothing;
// infinite if there is nothing of what it takes.
std::vector<double> dominant_shares(const SearchProblem& problem);

// Replicas of a job that was never measured: it is not given more than one, and one that was, at most twice as many as
// it was measured with.
int profiled_limit(const JobInfo& job);

// Whether the replicas of each node follow each other.
bool side_by_side(const Allocation& allocation);

Allocation to_allocation(const SearchFrame& frame, const Placement& placement);

// By node of `nodes`; empty if a node is gone, for then the job cannot go on as it is.
Placement to_placement(const Allocation& allocation, const std::map<std::string_view, int>& nodes);

// Of each type in turn; what is missing or negative is 0.
std::vector<std::int64_t> amounts(const Resources& resources, const std::vector<std::string>& types);

// How many replicas with this demand find room. 0 if they ask for nothing.
std::int64_t room(const std::vector<std::int64_t>& demand, const std::vector<std::int64_t>& free);

}  // namespace adaptdl::sched
