// NSGA-II (Deb et al., 2002) over allocations: the search of the Pollux paper.
//
// A state says how many replicas each job has on each node. Each generation breeds as many new states as there are: of
// parents chosen by binary tournaments (dominance, then crowding), crossed between two jobs, mutated (rows reset to the
// previous allocation, replicas taken away, free room filled) and repaired to respect every constraint. The best half
// of old and new, by fronts that do not dominate each other and then by crowding, survives. Objectives are the mean of
// the jobs' values, and the utility of the nodes in use.
//
// Deterministic under its seed. Threading: free of state.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/pollux_objective.h"

namespace adaptdl::sched {

struct GeneticOptions {
  std::uint64_t seed = 0;
  int population = 100;
  int generations = 100;
  int max_nodes = 16;  // of one job
};

using GeneticState = std::vector<Placement>;  // of each job

struct GeneticResult {
  GeneticState best;                 // by the first objective
  std::vector<GeneticState> states;  // those that no other dominates, the best among them: to start from the next time
};

// `mean` turns the sum of values into the objective. `start` are states to begin with, of the same jobs and nodes; if
// there are none, the previous allocation is. Jobs earlier in the problem are served first where not all fit. Pinned
// jobs keep theirs.
GeneticResult search_genetic(const PolluxProblem& problem, const PowerMean& mean,
                             const std::vector<GeneticState>& start, const GeneticOptions& options);

}  // namespace adaptdl::sched
