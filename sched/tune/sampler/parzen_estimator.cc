#include "tune/sampler/parzen_estimator.h"

#include <algorithm>

#include "tune/study/portable_math.h"

namespace adaptdl::sched::tune {
namespace {

// Returns the weights of the points and, last, of the prior kernel: 1 for the 25 most recent points, decreasing
// linearly to 1 / `observed` for the oldest (Bergstra, Yamins, Cox, "Making a Science of Model Search", 2013).
std::vector<double> weights(std::size_t observed) {
  constexpr std::size_t kFull = 25;
  std::vector<double> weights(observed + 1, 1);
  if (observed <= kFull) return weights;
  const std::size_t ramp = observed - kFull;
  const double min_weight = 1 / static_cast<double>(observed);
  for (std::size_t i = 0; i < ramp; ++i)
    weights[i] =
        min_weight + (ramp > 1 ? (1 - min_weight) * static_cast<double>(i) / static_cast<double>(ramp - 1) : 0);
  return weights;
}

}  // namespace

ParzenEstimator::ParzenEstimator(const std::vector<Distribution>& distributions, const std::vector<Point>& observed) {
  double sum = 0;
  for (const double weight : weights(observed.size())) {
    cumulative_.push_back(sum += weight);
    log_weights_.push_back(portable::log(weight));
  }
  for (double& each : log_weights_) each -= portable::log(sum);
  for (std::size_t i = 0; i < distributions.size(); ++i) {
    std::vector<double> column;
    for (const Point& point : observed) column.push_back(point[i]);
    kernels_.push_back(make_parzen_kernels(distributions[i], column));
  }
}

Point ParzenEstimator::draw(RandomBits& random) const {
  const double mark = random.unit() * cumulative_.back();
  const auto found = std::ranges::upper_bound(cumulative_, mark) - cumulative_.begin();
  const std::size_t kernel = std::min(static_cast<std::size_t>(found), cumulative_.size() - 1);
  Point point;
  for (const auto& each : kernels_) point.push_back(each->draw(kernel, random));
  return point;
}

double ParzenEstimator::log_density(const Point& point) const {
  std::vector<double> sums = log_weights_;
  for (std::size_t i = 0; i < kernels_.size(); ++i) kernels_[i]->add_log_density(point[i], sums);
  // The densities are summed relative to the largest, so that the sum does not underflow.
  const double largest = std::ranges::max(sums);
  double density = 0;
  for (const double each : sums) density += portable::exp(each - largest);
  return largest + portable::log(density);
}

}  // namespace adaptdl::sched::tune
