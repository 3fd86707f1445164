// An allocation under construction: each job's placement, the free resources, and the value of the allocation.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "policy/search/allocation_search.h"

namespace adaptdl::sched {

// Returns the value of a job's placement, from the values in SearchJob.
double placement_value(const SearchJob& job, const Placement& placement);

int replica_count(const Placement& placement);

class SearchState {
 public:
  // Begins with the previous placements of pinned jobs, and none for all other jobs. `problem` must outlive the state.
  explicit SearchState(const SearchProblem& problem);

  const std::vector<Placement>& placements() const noexcept { return placements_; }
  const Placement& placement(int job) const { return placements_[index(job)]; }
  const std::vector<int>& jobs_on(int node) const { return jobs_on_[index(node)]; }
  double value() const noexcept { return value_; }
  double value_of(int job) const { return values_[index(job)]; }

  // Returns how many more replicas of the job fit on the node.
  int room(int job, int node) const;
  // Returns whether a job on several nodes may also use this node.
  bool open_to_distributed(int node) const { return distributed_on_[index(node)] == 0; }
  // Returns whether the placement fits alongside the current ones. REQUIRES that the job has no placement.
  bool fits(int job, const Placement& placement) const;

  // REQUIRES that the job has no placement, and that fits() returns true.
  void place(int job, Placement placement);
  void remove(int job);

  // Find room for `replicas` replicas of a job: on the fullest single node with enough room, or on few nodes. If there
  // is a choice, nodes that the job was on come first. REQUIRES that the job has no placement.
  std::optional<Placement> find_one_node(int job, int replicas) const;
  std::optional<Placement> find_many_nodes(int job, int replicas) const;

  // Returns the most valuable placement that fits, which may be empty. REQUIRES that the job has no placement.
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
  std::vector<std::vector<int>> jobs_on_;        // by node
  std::vector<int> distributed_on_;              // distributed jobs by node, not counting pinned jobs
};

}  // namespace adaptdl::sched
