// The trials of a study that TPE learns from, in two parts.
#pragma once

#include <tuple>
#include <vector>

#include "tune/study.h"

namespace adaptdl::sched::tune {

// What trials that have ended are compared by; lower is better.
using TrialRank = std::tuple<bool, double, double>;
// By the first objective of the study. REQUIRES a completed trial with a value, or a pruned one.
TrialRank rank_of(const Trial& trial, const Study& study);

struct TrialSplit {
  // In the order of their numbers: the best tenth of those that have ended, rounded up, but at most 25; and all others.
  std::vector<const Trial*> good, rest;
  std::vector<const Trial*> ended;  // with a result, from the best to the worst

  // By the first objective, without the trial that is sampled. A completed trial is better than any pruned one. Of two
  // pruned ones, the one that got further is better, and at the same step the one with the better report. Trials whose
  // result is not a number count as failed.
  TrialSplit(const Study& study, int sampled);
};

}  // namespace adaptdl::sched::tune
