// The density of trials over several parameters at once: a mixture in which each trial is a kernel, the product of its
// kernels of the parameters (Falkner et al., "BOHB", 2018, without their bandwidths; those are Optuna's).
#pragma once

#include <memory>
#include <vector>

#include "tune/parzen_kernels.h"
#include "tune/random_bits.h"
#include "tune/space.h"

namespace adaptdl::sched::tune {

using Point = std::vector<double>;  // by parameter; see parzen_kernels.h

class ParzenEstimator {
 public:
  // The points are the oldest first: recent ones weigh more. REQUIRES points within distributions of several values.
  ParzenEstimator(const std::vector<Distribution>& distributions, const std::vector<Point>& observed);

  Point draw(RandomBits& random) const;
  double log_density(const Point& point) const;

 private:
  std::vector<double> cumulative_, log_weights_;         // by kernel; the last is not a trial's
  std::vector<std::unique_ptr<ParzenKernels>> kernels_;  // by parameter
};

}  // namespace adaptdl::sched::tune
