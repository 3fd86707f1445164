// Pollux (Qiao et al., OSDI 2021): allocations that make the whole cluster progress most, by goodput.
//
//   pollux            as in the paper: the power mean of fair-share speedups, searched by a genetic algorithm that goes
//                     on from what the last cycle found; a cluster of fixed size. A cycle takes tenths of a second for
//                     160 jobs on 16 nodes, and grows with jobs x nodes.
//   pollux-released   as the released scheduler has it: the sum of speedups, as many nodes as they make good use of;
//                     but searched by search_allocations, which finds better allocations and far sooner.
//
// Both give a job at most twice the replicas that it was measured with, or as many as it needs at least.
#pragma once

#include <memory>

#include "policy/genetic_search.h"
#include "policy/policies.h"
#include "policy/pollux_objective.h"

namespace adaptdl::sched {

enum class PolluxSearch { kGenetic, kAdditive };

struct PolluxOptions {
  PolluxObjective objective = PolluxObjective::kPaper;
  PolluxSearch search = PolluxSearch::kGenetic;
  double fairness = -1;      // exponent of the paper's power mean; see PowerMean
  double restart_cost = 30;  // seconds
  UtilityRange utility;
  GeneticOptions genetic;
};

std::unique_ptr<Policy> make_pollux(const PolluxOptions& options);

// What the names stand for.
PolluxOptions paper_options(const PolicyOptions& options);
PolluxOptions released_options(const PolicyOptions& options);
PolluxOptions adaptive_options(const PolicyOptions& options);

}  // namespace adaptdl::sched
