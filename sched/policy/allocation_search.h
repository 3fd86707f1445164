// Searches for the best allocation under an objective that is a sum over jobs. Several policies share this search.
//
// The value of a job depends on how many replicas it has, on whether they are on one node or several, and on whether
// its allocation changes. A sum of speedups is such an objective, and so is a power mean (its p-th power). The search
// solves the smallest problems exactly. For others, it chooses the best sizes by dynamic programming, places each job
// on few nodes and with few changes, and improves the result by local search. It is deterministic.
#pragma once

#include <cstdint>
#include <vector>

namespace adaptdl::sched {

// The replicas of a job on one node, which is given by its index. A placement is sorted by node, and each of its
// shares has at least one replica.
struct Share {
  int node = 0;
  int replicas = 0;
  bool operator==(const Share&) const = default;
};
using Placement = std::vector<Share>;

struct SearchJob {
  std::vector<std::int64_t> demand;  // of one replica, by resource; a job without a positive amount gets nothing
  int min_replicas = 0;              // the job gets no replicas, or at least this many
  int max_replicas = 0;
  bool pinned = false;  // keeps `previous` in any case
  Placement previous;
  // The values of r replicas, at index r up to max_replicas, on one node and on several nodes, if the allocation
  // changes. Sizes beyond the end are not available. Index 0 is the value of no replicas in both. All are finite.
  std::vector<double> one_node, many_nodes;
  double keep = 0;  // the value of an unchanged `previous`, even if that is empty
};

struct SearchNode {
  std::vector<std::int64_t> capacity;  // by resource, as in `demand`
};

struct SearchProblem {
  std::vector<SearchJob> jobs;
  std::vector<SearchNode> nodes;  // preferred ones first
};

struct SearchResult {
  std::vector<Placement> placements;  // one per job
  double value = 0;
};

SearchResult search_allocations(const SearchProblem& problem);

// Returns the value of `placements` (one per job) under the objective of the search.
double allocation_value(const SearchProblem& problem, const std::vector<Placement>& placements);

}  // namespace adaptdl::sched
