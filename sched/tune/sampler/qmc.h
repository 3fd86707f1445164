// A Sobol' sequence, scrambled at random in the same way as in SciPy, which Optuna uses. Each of 2^k equal parts of any
// parameter's range contains exactly one of the first 2^k trials, and pairs of parameters are filled almost as evenly.
//
// A trial's number selects the point, and a parameter's index in the space selects the coordinate, whether or not the
// parameters before it apply. Parameters after the first kDimensions are drawn at random.
#pragma once

#include "tune/sampler/sampler.h"

namespace adaptdl::sched::tune {

// Return a coordinate of a point, in [0, 1), without and with the scrambling of QmcSampler. REQUIRES dimension < 64.
double sobol(std::size_t dimension, std::uint32_t point);
double scrambled_sobol(std::size_t dimension, std::uint32_t point, std::uint64_t seed);

class QmcSampler final : public Sampler {
 public:
  static constexpr std::size_t kDimensions = 64;

  explicit QmcSampler(std::uint64_t seed) : seed_(seed) {}
  std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) override;

 private:
  std::uint64_t seed_;
};

}  // namespace adaptdl::sched::tune
