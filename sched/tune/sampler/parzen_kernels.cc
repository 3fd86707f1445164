#include "tune/sampler/parzen_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "tune/study/portable_math.h"

namespace adaptdl::sched::tune {
namespace {

// A range of numbers, and its bounds in the coordinate of the kernels.
struct Axis {
  double first = 0, last = 0;  // the first and last value
  double step = 0;             // 0: continuous
  bool log = false;            // the kernels are over the logarithm
  double low = 0, high = 0;    // where the kernels end: half a step beyond the values

  Axis(double first_value, double last_value, double width, bool is_log)
      : first(first_value), last(last_value), step(width), log(is_log) {
    low = place(first - step / 2);
    high = place(last + step / 2);
  }
  double place(double value) const { return log ? portable::log(value) : value; }
};

Axis axis_of(const FloatRange& range) {
  if (!range.step) return {range.low, range.high, 0, range.log};
  const auto steps = static_cast<double>(*cardinality(range) - 1);
  return {range.low, range.low + steps * *range.step, *range.step, range.log};
}

Axis axis_of(const IntRange& range) {
  const auto steps = static_cast<double>(*cardinality(range) - 1), step = static_cast<double>(range.step);
  return {static_cast<double>(range.low), static_cast<double>(range.low) + steps * step, step, range.log};
}

struct NormalKernel {
  double mean = 0, deviation = 0;
  auto operator<=>(const NormalKernel&) const = default;

  double standard(double place) const { return (place - mean) / deviation; }
};

// Returns a kernel for each mean and, last, the prior kernel. A kernel's deviation is the larger of the gaps to its
// neighbors. At the ends, it is the gap to the only neighbor, and for a single kernel, the distance to the farther end
// of the range. It is at most the range, and at least a fraction of the range that shrinks as the number of kernels
// grows.
std::vector<NormalKernel> normals(const Axis& axis, const std::vector<double>& means) {
  const std::size_t count = means.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return means[i]; });
  const double range = axis.high - axis.low;
  const double narrowest = range / std::min(100.0, static_cast<double>(count) + 2);
  std::vector<NormalKernel> kernels(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const double mean = means[order[i]];
    const bool is_first = i == 0, is_last = i + 1 == count;
    const double left = is_first ? mean - axis.low : mean - means[order[i - 1]];
    const double right = is_last ? axis.high - mean : means[order[i + 1]] - mean;
    const double gap = is_first && !is_last ? right : is_last && !is_first ? left : std::max(left, right);
    kernels[order[i]] = {mean, std::clamp(gap, narrowest, range)};
  }
  kernels[count] = {axis.low + range / 2, range};
  return kernels;
}

// Maps `unit`, a uniform random number in [0, 1), to a sample from the kernel. The mean is in the range, so the mass
// between the two tails is never small, and the subtraction is accurate.
double draw_place(const NormalKernel& kernel, const Axis& axis, double unit) {
  const double below = portable::normal_cdf(kernel.standard(axis.low));
  const double above = portable::normal_cdf(-kernel.standard(axis.high));
  const double mass = 1 - below - above, probability = below + unit * mass;
  const double drawn = probability <= 0.5 ? portable::normal_quantile(probability)
                                          : -portable::normal_quantile(above + (1 - unit) * mass);
  return std::clamp(kernel.mean + kernel.deviation * drawn, axis.low, axis.high);
}

double log_mass_in_range(const NormalKernel& kernel, const Axis& axis) {
  return portable::log(portable::normal_mass(kernel.standard(axis.low), kernel.standard(axis.high)));
}

class ContinuousKernels final : public ParzenKernels {
 public:
  ContinuousKernels(const Axis& axis, const std::vector<double>& observed)
      : axis_(axis), kernels_(normals(axis, observed)) {
    for (const NormalKernel& kernel : kernels_)
      log_scale_.push_back(portable::log(kernel.deviation) + log_mass_in_range(kernel, axis_));
  }

  double draw(std::size_t kernel, RandomBits& random) const override {
    return draw_place(kernels_[kernel], axis_, random.unit());
  }

  void add_log_density(double point, std::vector<double>& sums) const override {
    constexpr double kLogRootTwoPi = 0.91893853320467274178;
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const double z = kernels_[i].standard(point);
      sums[i] += -0.5 * z * z - kLogRootTwoPi - log_scale_[i];
    }
  }

 private:
  Axis axis_;
  std::vector<NormalKernel> kernels_;
  std::vector<double> log_scale_;
};

class SteppedKernels final : public ParzenKernels {
 public:
  SteppedKernels(const Axis& axis, std::vector<double> observed) : axis_(axis) {
    for (double& each : observed) each = axis_.place(each);
    kernels_ = normals(axis_, observed);
    distinct_ = kernels_;
    std::ranges::sort(distinct_);
    distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
    for (const NormalKernel& kernel : kernels_)
      index_.push_back(static_cast<std::size_t>(std::ranges::lower_bound(distinct_, kernel) - distinct_.begin()));
    for (const NormalKernel& kernel : distinct_) log_scale_.push_back(log_mass_in_range(kernel, axis_));
  }

  double draw(std::size_t kernel, RandomBits& random) const override {
    const double place = draw_place(kernels_[kernel], axis_, random.unit());
    const double steps = std::round(((axis_.log ? portable::exp(place) : place) - axis_.first) / axis_.step);
    return std::clamp(axis_.first + steps * axis_.step, axis_.first, axis_.last);
  }

  void add_log_density(double point, std::vector<double>& sums) const override {
    const auto [known, is_new] = columns_.try_emplace(point);
    if (is_new) known->second = log_masses(point);
    for (std::size_t i = 0; i < index_.size(); ++i) sums[i] += known->second[index_[i]];
  }

 private:
  // Returns the log masses of the distinct kernels. A mass that is too small for a double is replaced with a negligible
  // mass, which is harmless because the prior kernel covers the whole range.
  std::vector<double> log_masses(double point) const {
    constexpr double kFar = 38, kNothing = -745;
    const double left = axis_.place(point - axis_.step / 2), right = axis_.place(point + axis_.step / 2);
    std::vector<double> masses;
    for (std::size_t i = 0; i < distinct_.size(); ++i) {
      const double a = distinct_[i].standard(left), b = distinct_[i].standard(right);
      const double mass = a > kFar || b < -kFar ? 0 : portable::normal_mass(a, b);
      masses.push_back((mass > 0 ? portable::log(mass) : kNothing) - log_scale_[i]);
    }
    return masses;
  }

  Axis axis_;
  std::vector<NormalKernel> kernels_, distinct_;
  std::vector<std::size_t> index_;  // by kernel: its index in distinct_
  std::vector<double> log_scale_;   // by index in distinct_
  mutable std::map<double, std::vector<double>> columns_;
};

// A kernel assigns its observed value a probability that grows with the number of kernels, and all other values the
// same small probability.
class ChoiceKernels final : public ParzenKernels {
 public:
  ChoiceKernels(std::size_t choices, const std::vector<double>& observed) : choices_(choices), observed_(observed) {
    const auto kernels = static_cast<double>(observed.size() + 1);
    other_ = 1 / (kernels + static_cast<double>(choices));
  }

  double draw(std::size_t kernel, RandomBits& random) const override {
    const auto choices = static_cast<double>(choices_);
    const double unit = random.unit();
    if (kernel == observed_.size() || unit < choices * other_) {
      const double uniform = kernel == observed_.size() ? unit : unit / (choices * other_);
      return std::min(std::floor(uniform * choices), choices - 1);
    }
    return observed_[kernel];
  }

  void add_log_density(double point, std::vector<double>& sums) const override {
    const double other = portable::log(other_);
    const double same = portable::log(1 - static_cast<double>(choices_ - 1) * other_);
    for (std::size_t i = 0; i < observed_.size(); ++i) sums[i] += observed_[i] == point ? same : other;
    sums.back() -= portable::log(static_cast<double>(choices_));
  }

 private:
  std::size_t choices_;
  std::vector<double> observed_;
  double other_;
};

bool is_log_of_float(const Distribution& distribution) {
  const auto* range = std::get_if<FloatRange>(&distribution);
  return range != nullptr && range->log;
}

}  // namespace

double to_point(const Distribution& distribution, double number) {
  return is_log_of_float(distribution) ? portable::log(number) : number;
}

double from_point(const Distribution& distribution, double point) {
  return is_log_of_float(distribution) ? portable::exp(point) : point;
}

std::unique_ptr<ParzenKernels> make_parzen_kernels(const Distribution& distribution,
                                                   const std::vector<double>& observed) {
  if (const auto* choice = std::get_if<Choice>(&distribution))
    return std::make_unique<ChoiceKernels>(choice->values.size(), observed);
  const auto* range = std::get_if<FloatRange>(&distribution);
  const Axis axis = range != nullptr ? axis_of(*range) : axis_of(std::get<IntRange>(distribution));
  if (axis.step > 0) return std::make_unique<SteppedKernels>(axis, observed);
  return std::make_unique<ContinuousKernels>(axis, observed);
}

}  // namespace adaptdl::sched::tune
