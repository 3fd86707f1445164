// Searches for the best allocation under an objective that is a sum over jobs. Several policies share this search.
//
// A job's value depends on how many replicas it has, on whether they are on one node or several, and on whether its
// allocation changes. A sum of speedups is a sum over jobs, and so is the p-th power of a power mean. The search solves
// the smallest problems exactly. For larger ones, it chooses the best sizes by dynamic programming, places each job on
// few nodes and with few changes, and improves the result by local search. It is deterministic.
#pragma once

#include <cstdint>
#include <vector>

namespace adaptdl::sched {

// A job's replicas on the node with index `node`. A placement is sorted by node, and each of its shares has at least
// one replica.
struct Share {
  int node = 0;
  int replicas = 0;
  bool operator==(const Share&) const = default;
};
using Placement = std::vector<Share>;

struct SearchJob {
  std::vector<std::int64_t> demand;  // per replica, by resource; a job without a positive amount gets no replicas
  int min_replicas = 0;              // the job gets either no replicas or at least this many
  int max_replicas = 0;
  bool pinned = false;  // always keeps `previous`
  Placement previous;
  // The value of a changed allocation with r replicas, on one node and on several nodes, at index r up to max_replicas.
  // Sizes beyond the end are not available. Index 0 holds the value of having no replicas. All values are finite.
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

// Returns the value of `placements` (one per job) under the search's objective.
double allocation_value(const SearchProblem& problem, const std::vector<Placement>& placements);

}  // namespace adaptdl::sched
