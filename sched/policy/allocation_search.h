// The best allocation for an objective that is a sum over jobs: the search that policies share.
//
// The value of a job depends on how many replicas it has, whether they are on one node or several, and whether its
// allocation changed. A sum of speedups is such an objective, and so is a power mean (its p-th power). Found are: the
// exact best for the smallest problems, else the best sizes by dynamic programming, placed with few nodes a job and few
// changes, and improved by local search until no move helps.
//
// Deterministic. Threading: free of state.
#pragma once

#include <cstdint>
#include <vector>

namespace adaptdl::sched {

// The replicas of a job on each node: pairs of (index of the node, count >= 1), by index.
struct Share {
  int node = 0;
  int replicas = 0;
  bool operator==(const Share&) const = default;
};
using Placement = std::vector<Share>;

struct SearchJob {
  std::vector<std::int64_t> demand;  // of one replica, by resource; at least one is positive, or it gets nothing
  int min_replicas = 0;              // it gets none, or at least these
  int max_replicas = 0;
  bool pinned = false;  // keeps `previous`, whatever it is
  Placement previous;
  // Value of r replicas (index r, up to max_replicas; beyond the end: not to be had) on one node and on several, if the
  // allocation changed. Index 0 is the value of nothing, also on several. Finite.
  std::vector<double> one_node, many_nodes;
  double keep = 0;  // the value of `previous` unchanged, be it nothing or not
};

struct SearchNode {
  std::vector<std::int64_t> capacity;  // by resource, as in `demand`
};

struct SearchProblem {
  std::vector<SearchJob> jobs;
  std::vector<SearchNode> nodes;  // preferred ones first
};

struct SearchResult {
  std::vector<Placement> placements;  // of each job
  double value = 0;
};

SearchResult search_allocations(const SearchProblem& problem);

// The value of placements (of each job), as the search counts it.
double allocation_value(const SearchProblem& problem, const std::vector<Placement>& placements);

}  // namespace adaptdl::sched
