// Pollux (Qiao et al., OSDI 2021): allocations that maximize the progress of the whole cluster, measured by goodput.
//
//   pollux            as in the paper: maximizes the power mean of fair-share speedups by a genetic search that
//                     continues from the states of the last cycle, on a cluster of fixed size. A cycle takes tenths of
//                     a second for 160 jobs on 16 nodes; the time grows with jobs x nodes.
//   pollux-released   as in the released scheduler: maximizes the sum of speedups, on as many nodes as the jobs can use
//                     well. Its search is search_allocations(), which finds better allocations far faster.
//
// Both give a job at most twice the number of replicas that it was measured with, or its minimum if that is larger.
#pragma once

#include <memory>

#include "policy/search/genetic_search.h"
#include "policy/search/policy_options.h"
#include "policy/search/pollux_objective.h"

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

// The options of the policies "pollux", "pollux-released" and "adaptive".
PolluxOptions paper_options(const PolicyOptions& options);
PolluxOptions released_options(const PolicyOptions& options);
PolluxOptions adaptive_options(const PolicyOptions& options);

}  // namespace adaptdl::sched
