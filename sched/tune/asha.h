// Asynchronous successive halving with promotion (ASHA: Li et al., A System for Massively Parallel Hyperparameter
// Tuning, MLSys 2020), with a delay as in D-ASHA (Li et al., Hyper-Tune, VLDB 2022): a trial among the best 1/factor at
// a rung is promoted only as long as fewer than 1/factor of the trials there were, although their order changes as
// others arrive. Unlike in D-ASHA, the best trial at a rung is always promoted. The brackets of Hyperband (Li et al.,
// JMLR 2018) are on top of it: the trials of bracket b are first compared at rung b, so that a metric that means little
// early does not prune every trial that starts slowly.
#pragma once

#include "tune/pruner.h"

namespace adaptdl::sched::tune {

class Asha : public Pruner {
 public:
  // With one bracket, this is plain ASHA.
  Asha(const PrunerOptions& options, int brackets) : options_(options), brackets_(brackets) {}

  Judgement judge(const Study& study, const Trial& trial) const override;
  std::optional<Promotion> promote(const Study& study, bool last, const std::function<bool(int)>& busy) const override;

 private:
  const PrunerOptions options_;
  const int brackets_;
};

// Returns the bracket of each of the first `count` trials, by number, in the proportions of Hyperband: of B brackets,
// bracket b gets factor^(B-1-b) / (B-b) parts. The bracket of a trial does not depend on `count`.
std::vector<int> assign_brackets(std::size_t count, int brackets, int factor);

}  // namespace adaptdl::sched::tune
