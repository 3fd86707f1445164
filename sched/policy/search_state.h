// An allocation in the making: who has which replicas where, what is free, and what it is worth.
//
// Threading: one thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "policy/allocation_search.h"

namespace adaptdl::sched {

// The value of one job's placement, as SearchJob has it.
double placement_value(const SearchJob& job, const Placement& placement);

int replica_count(const Placement& placement);

class SearchState {
 public:
  // Pinned jobs have their previous placement, all others none. `problem` outlives the state.
  explicit SearchState(const SearchProblem& problem);

  const std::vector<Placement>& placements() const noexcept { return placements_; }
  const Placement& placement(int job) const { return placements_[index(job)]; }
  const std::vector<int>& jobs_on(int node) const { return jobs_on_[index(node)]; }
  double value() const noexcept { return value_; }
  double value_of(int job) const { return values_[index(job)]; }

  // How many more replicas of a job a node has room for.
  int room(int job, int node) const;
  // Whether a job that is on several nodes may use this one too.
  bool open_to_distributed(int node) const { return distributed_on_[index(node)] == 0; }
  // Whether the placement is possible beside what is placed. REQUIRES that the job has none.
  bool fits(int job, const Placement& placement) const;

  // REQUIRES that the job has none, and fits().
  void place(int job, Placement placement);
  void remove(int job);

  // Where `replicas` of a job find room: on one node, the fullest that has it, or on few. Nodes that it has been on
  // come first among equals. REQUIRES that the job has none.
  std::optional<Placement> find_one_node(int job, int replicas) const;
  std::optional<Placement> find_many_nodes(int job, int replicas) const;

  // The most valuable of all placements that find room, nothing included. REQUIRES that the job has none.
  Placement best_placement(int job) const;

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  void set(int job, Placement placement, int sign);
  bool was_on(int job, int node) const;

  const SearchProblem& problem_;
  std::vector<Placement> placements_;
  std::vector<double> values_;
  double value_ = 0;
  std::vector<std::vector<std::int64_t>> free_;  // by node and resource
  std::vector<std::vector<int>> jobs_on_;        // of each node
  std::vector<int> distributed_on_;              // of each node, pinned jobs not counted
};

}  // namespace adaptdl::sched
