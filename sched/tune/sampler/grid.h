// Tries every combination of a space once, in a random order.
//
// A combination is considered tried if a trial with this combination is running or has ended, even if the trial failed.
// An enqueued trial specifies some values; if all combinations with these values have been tried, it repeats one of
// them.
#pragma once

#include "tune/sampler/sampler.h"

namespace adaptdl::sched::tune {

class GridSampler final : public Sampler {
 public:
  explicit GridSampler(std::uint64_t seed) : seed_(seed) {}
  std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) override;

 private:
  std::uint64_t seed_;
};

}  // namespace adaptdl::sched::tune
