// One parameter of a Parzen estimator: a kernel around each observation and, last, a prior kernel. The prior kernel is
// uniform over the values of a choice, or a normal distribution as wide as the range.
//
// The kernels of numbers are normal distributions that are cut off at the ends of the range (Bergstra et al.,
// "Algorithms for Hyper-Parameter Optimization", 2011); for a logarithmic range, they are distributions of the
// logarithm. In a stepped range, each value has the mass within half a step around it. The bandwidths follow Optuna 5;
// Watanabe, "Tree-Structured Parzen Estimator", 2023, compares such rules.
//
// Points are numbers as to_internal() returns them, or their logarithms for a logarithmic range of floats.
#pragma once

#include <memory>
#include <vector>

#include "tune/study/random_bits.h"
#include "tune/study/space.h"

namespace adaptdl::sched::tune {

double to_point(const Distribution& distribution, double number);
double from_point(const Distribution& distribution, double point);

class ParzenKernels {
 public:
  virtual ~ParzenKernels() = default;
  // Returns a point drawn from a kernel.
  virtual double draw(std::size_t kernel, RandomBits& random) const = 0;
  // Adds the logarithm of each kernel's density at the point to sums[kernel].
  virtual void add_log_density(double point, std::vector<double>& sums) const = 0;
};

// REQUIRES a distribution with several values, and observed points within it.
std::unique_ptr<ParzenKernels> make_parzen_kernels(const Distribution& distribution,
                                                   const std::vector<double>& observed);

}  // namespace adaptdl::sched::tune
