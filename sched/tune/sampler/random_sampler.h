// Draws all parameters independently and uniformly.
#pragma once

#include "tune/sampler/sampler.h"

namespace adaptdl::sched::tune {

class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(std::uint64_t seed) : seed_(seed) {}
  std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) override;

 private:
  std::uint64_t seed_;
};

}  // namespace adaptdl::sched::tune
