// NSGA-II (Deb et al., 2002) over allocations: the search of the Pollux paper.
//
// A state is the number of replicas of each job on each node. Each generation breeds as many new states as the
// population contains. Their parents are chosen by binary tournaments (dominance, then crowding) and crossed at a
// boundary between two jobs. The children are mutated (rows are reset to the previous allocation, replicas removed,
// free room filled) and repaired to respect every constraint. The best half of the old and new states survives: whole
// fronts of states that do not dominate each other, then the least crowded states of the next front. The objectives are
// the mean of the jobs' values and the utility of the nodes in use. The search is deterministic for a given seed.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/search/pollux_objective.h"

namespace adaptdl::sched {

struct GeneticOptions {
  std::uint64_t seed = 0;
  int population = 100;
  int generations = 100;
  int max_nodes = 16;  // per job
};

using GeneticState = std::vector<Placement>;  // one per job

struct GeneticResult {
  GeneticState best;                 // by the first objective
  std::vector<GeneticState> states;  // all nondominated states, including the best; the next search can start from them
};

// `mean` turns the sum of values into the objective. The search begins with the states in `start`, which must be for
// the same jobs and nodes, or with the previous allocation if `start` is empty. If not all jobs fit, jobs earlier in
// the problem take precedence. Pinned jobs keep their placements.
GeneticResult search_genetic(const PolluxProblem& problem, const PowerMean& mean,
                             const std::vector<GeneticState>& start, const GeneticOptions& options);

}  // namespace adaptdl::sched
