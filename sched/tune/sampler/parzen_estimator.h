// The joint density of trials over several parameters: a mixture with one kernel per trial. A kernel is the product of
// the trial's kernels for the single parameters (Falkner et al., "BOHB", 2018, but with Optuna's bandwidths).
#pragma once

#include <memory>
#include <vector>

#include "tune/sampler/parzen_kernels.h"
#include "tune/study/random_bits.h"
#include "tune/study/space.h"

namespace adaptdl::sched::tune {

using Point = std::vector<double>;  // one number per parameter; see parzen_kernels.h

class ParzenEstimator {
 public:
  // The oldest points come first; recent points have larger weights. REQUIRES that each distribution has several
  // values, and that the points are within the distributions.
  ParzenEstimator(const std::vector<Distribution>& distributions, const std::vector<Point>& observed);

  Point draw(RandomBits& random) const;
  double log_density(const Point& point) const;

 private:
  std::vector<double> cumulative_, log_weights_;         // by kernel; the last is the prior kernel
  std::vector<std::unique_ptr<ParzenKernels>> kernels_;  // by parameter
};

}  // namespace adaptdl::sched::tune
