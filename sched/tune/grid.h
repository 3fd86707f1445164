// Every combination once, in a random order.
//
// A combination counts as tried if a trial has it that is running or has ended, even with a failure: what fails is not
// repeated. An enqueued trial, which has something given, gets one again if all that agree with it are tried.
#pragma once

#include "tune/sampler.h"

namespace adaptdl::sched::tune {

class GridSampler final : public Sampler {
 public:
  explicit GridSampler(std::uint64_t seed) : seed_(seed) {}
  std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) override;

 private:
  std::uint64_t seed_;
};

}  // namespace adaptdl::sched::tune
