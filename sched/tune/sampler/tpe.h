// The tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", 2011), with the
// rules and defaults of Optuna 5.
//
// Trials that have ended are split into a few good ones and the rest. Some candidates are drawn from the density of the
// good ones; the next trial is the candidate for which the ratio of that density to the density of the rest is largest.
// A running trial is included in the rest, regardless of its reports ("constant liar"), so that trials sampled while it
// is running keep away from it. Failed and waiting trials are ignored.
//
// Parameters that all ended trials have, with the same distribution as in the space, are sampled together. Others, such
// as those with conditions, are sampled one by one, from the trials that have them. Given values do not influence the
// other parameters, except through conditions.
#pragma once

#include "tune/sampler/sampler.h"

namespace adaptdl::sched::tune {

class TpeSampler final : public Sampler {
 public:
  static constexpr std::size_t kStartupTrials = 10;  // until this many have ended, new trials are sampled at random
  static constexpr int kCandidates = 24;

  explicit TpeSampler(std::uint64_t seed) : seed_(seed) {}
  std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) override;

 private:
  std::uint64_t seed_;
};

}  // namespace adaptdl::sched::tune
