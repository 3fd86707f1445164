// Implements asynchronous successive halving with promotion (ASHA: Li et al., A System for Massively Parallel
// Hyperparameter Tuning, MLSys 2020), and the brackets of Hyperband (Li et al., JMLR 2018) on top of it. The trials of
// bracket b are first compared at rung b, so that a metric that is not meaningful early does not prune every trial that
// starts slowly.
//
// Unlike in ASHA, a trial among the best 1/factor at a rung is promoted only if fewer than 1/factor of the trials there
// were promoted before it, or if it is the best of all. Without this rule, if later trials tend to be better, each of
// them would be promoted in addition to earlier ones that are no longer among the best.
#pragma once

#include "tune/pruner/pruner.h"

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
