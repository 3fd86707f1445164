// The tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", 2011), with the
// rules and defaults of Optuna 5.
//
// Trials that have ended are split into a few good ones and the rest. Of some candidates drawn from the density of the
// good ones, the next trial is the one that is most likely good: where that density is the largest in relation to that
// of the rest. A running trial counts among the rest, whatever it has reported ("constant liar"), so that those sampled
// beside it keep away from it. Failed and waiting trials count for nothing.
//
// Parameters that all trials which have ended have, with the distribution that the space gives them, are sampled
// together. Others, such as those of conditions, are sampled one by one, by the trials that have them. What is given
// has no influence on the others, except for conditions.
#pragma once

#include "tune/sampler.h"

namespace adaptdl::sched::tune {

class TpeSampler final : public Sampler {
 public:
  static constexpr std::size_t kStartupTrials = 10;  // sampled at random
  static constexpr int kCandidates = 24;

  explicit TpeSampler(std::uint64_t seed) : seed_(seed) {}
  std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) override;

 private:
  std::uint64_t seed_;
};

}  // namespace adaptdl::sched::tune
