// Splits a study's trials into good ones and the rest, from which TPE learns.
#pragma once

#include <tuple>
#include <vector>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

// The key by which ended trials are compared; lower is better.
using TrialRank = std::tuple<bool, double, double>;
// Ranks by the first objective of the study. REQUIRES a completed trial with a value, or a pruned one.
TrialRank rank_of(const Trial& trial, const Study& study);

struct TrialSplit {
  // Both are in the order of trial numbers. `good` is the best tenth of the ended trials, rounded up, but at most 25;
  // `rest` contains the other ended trials and the running ones.
  std::vector<const Trial*> good, rest;
  std::vector<const Trial*> ended;  // trials with a result, from the best to the worst

  // Splits by the first objective, excluding trial number `sampled`. A completed trial is better than any pruned one.
  // Of two pruned trials, the one that got further is better; at the same step, the one with the better report. Trials
  // whose result is NaN are treated as failed.
  TrialSplit(const Study& study, int sampled);
};

}  // namespace adaptdl::sched::tune
