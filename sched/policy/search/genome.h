// The states of the genetic search (genetic_search.h), and the operations on them: crossover, mutation, repair and
// evaluation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "policy/search/nsga2.h"
#include "policy/search/pollux_objective.h"

namespace adaptdl::sched {

// A state: the number of replicas of each movable job on each node.
struct Individual {
  using Count = std::uint16_t;

  std::vector<Count> cells;  // by job, then node
  nsga2::Objectives objectives{};
  double crowding = 0;

  // The result is valid until the cells change.
  std::string_view bytes() const { return {reinterpret_cast<const char*>(cells.data()), cells.size() * sizeof(Count)}; }
};

// The problem as rows of replica counts, with one row per movable job.
class Genome {
 public:
  // `max_nodes` applies to each job. `problem` must outlive the genome.
  Genome(const PolluxProblem& problem, const PowerMean& mean, int max_nodes);

  // Convert placements (one per job of the problem) to an individual and back. Jobs that are not movable are ignored,
  // and keep their previous placements if they are pinned.
  Individual encode(const std::vector<Placement>& state) const;
  std::vector<Placement> decode(const Individual& individual) const;

  // Usually exchanges, between the two individuals, the rows of all jobs before a random one.
  void cross(Individual& a, Individual& b, nsga2::Random& random) const;
  // Resets rows, removes replicas and fills free room, at random. The result may violate constraints.
  void mutate(Individual& individual, nsga2::Random& random);
  // Removes replicas until all constraints are met.
  void repair(Individual& individual, nsga2::Random& random);
  // Computes the objectives.
  void evaluate(Individual& individual);

  // Returns the number of movable jobs.
  std::size_t jobs() const { return movable_.size(); }

 private:
  using Count = Individual::Count;

  Count* row(Individual& individual, std::size_t job) const { return individual.cells.data() + job * nodes_; }
  const SearchJob& job(std::size_t index) const { return problem_.search.jobs[movable_[index]]; }
  void measure_free(const Individual& individual);
  void fill(Individual& individual, std::size_t node, nsga2::Random& random);
  void limit(Count* row, int max_replicas, nsga2::Random& random);
  void separate_distributed(Individual& individual);
  void respect_nodes(Individual& individual);
  bool fits(std::size_t index, std::size_t node) const;

  const PolluxProblem& problem_;
  PowerMean mean_;
  int max_nodes_;
  std::size_t nodes_, types_;
  std::vector<std::size_t> movable_;  // the indices of the movable jobs in the problem
  std::vector<Count> base_, room_;    // by job and node: the previous allocation, and what fits alongside pinned jobs
  std::vector<std::int64_t> capacity_, free_, pinned_use_;  // by node and resource
  double pinned_value_ = 0;
  std::vector<double> pinned_progress_;  // speedup x demand of pinned jobs, by resource
  std::vector<std::uint8_t> open_;       // flags by job in fill(), by node in other functions
  std::vector<std::uint32_t> order_;
};

}  // namespace adaptdl::sched
