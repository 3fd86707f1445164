// Fits the seven parameters of the step time.
#include "goodput/perf_fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>
#include <utility>

#include "goodput/fit_error.h"
#include "goodput/minimize.h"

namespace adaptdl::goodput {
namespace {

constexpr double kUnbounded = 1e9;          // seconds
constexpr double kBetweenOverWithin = 1.1;  // min cost of a link between nodes relative to one within a node
constexpr double kBlurs[] = {1e-1, 1e-2, 1e-3};
constexpr std::size_t kRarely = 2;       // max observations of a rarely observed link; a link has two parameters
constexpr double kRetrogression = 0.05;  // beta / alpha of a link at the start of a search
// Max relative difference between errors that are considered equal, and max relative difference that another search can
// be expected to eliminate.
constexpr double kErrorTie = 1e-7;
constexpr double kNear = 1e-1;

struct Box {
  Point lower, upper;
  void fix(Parameter parameter, double value) { lower[parameter] = upper[parameter] = std::log(value); }
  void fix_link(Link link) {
    fix(link == Link::kBetweenNodes ? kAlphaN : kAlphaR, kZero);
    fix(link == Link::kBetweenNodes ? kBetaN : kBetaR, kZero);
  }
  Point clamp(Point at) const {
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = std::clamp(at[i], lower[i], upper[i]);
    return at;
  }
};

void check_observations(std::span<const Observation> observations) {
  if (observations.empty()) throw UsageError("cannot fit step times: no observations");
  for (const Observation& each : observations) {
    const bool sized = each.nodes >= 1 && each.replicas >= each.nodes && each.atomic_bsz >= 1;
    const auto timed = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
    if (!sized || !timed(each.accum_step_time) || !timed(each.optim_step_time))
      throw UsageError(fmt::format(
          "cannot fit step times: invalid observation (nodes: {}, replicas: {}, batch size: {}, step times: "
          "{}s and {}s)",
          each.nodes, each.replicas, each.atomic_bsz, each.accum_step_time, each.optim_step_time));
  }
}

// Returns bounds that fix the parameters that the observations do not determine.
Box bounds_for(std::span<const Observation> observations, const FitError& error) {
  const double low = std::log(kZero), high = std::log(kUnbounded);
  Box box{{low, low, low, low, low, low, 1}, {high, high, high, high, high, high, 10}};
  std::set<std::size_t> sizes;
  double seconds = 0;
  bool retrogresses = false;
  for (const Observation& each : observations) {
    sizes.insert(each.atomic_bsz);
    seconds += each.accum_step_time;
    retrogresses = retrogresses || each.replicas > 2;
  }
  if (sizes.size() == 1) box.fix(kAlphaC, seconds / static_cast<double>(observations.size()) / 2);
  for (const Link link : {Link::kBetweenNodes, Link::kWithinNode})
    if (error.count(link) == 0) box.fix_link(link);
  if (!retrogresses) {
    box.fix(kBetaN, kZero);
    box.fix(kBetaR, kZero);
  }
  return box;
}

// Guesses the parameters from the data, regardless of the times' scale: fits a line to the computation times, and uses
// the mean time that synchronization adds to them as each link's alpha.
Point guess(std::span<const Observation> observations) {
  double weight = 0, size = 0, time = 0, size_size = 0, size_time = 0;
  double extra[3] = {}, number[3] = {};
  for (const Observation& each : observations) {
    const double bsz = static_cast<double>(each.atomic_bsz), seconds = each.accum_step_time;
    const double w = 1 / (seconds * seconds);  // so that relative errors are minimized
    weight += w;
    size += w * bsz;
    time += w * seconds;
    size_size += w * bsz * bsz;
    size_time += w * bsz * seconds;
    const auto link = static_cast<std::size_t>(link_of(each.nodes, each.replicas));
    extra[link] += std::max(each.optim_step_time - seconds, 1e-3 * seconds);
    number[link] += 1;
  }
  const double mean_time = time / weight, mean_size = size / weight;
  const double spread = weight * size_size - size * size;
  const double slope = spread > 0 ? (weight * size_time - size * time) / spread : 0;
  PerfParams params;
  params.beta_c = std::max(slope, 1e-3 * mean_time / mean_size);
  params.alpha_c = std::max(mean_time - slope * mean_size, 1e-3 * mean_time);
  const auto sync = [&](Link link) {
    const auto i = static_cast<std::size_t>(link);
    return number[i] > 0 ? extra[i] / number[i] : kZero;
  };
  params.alpha_n = sync(Link::kBetweenNodes);
  params.alpha_r = sync(Link::kWithinNode);
  params.beta_n = kRetrogression * params.alpha_n;
  params.beta_r = kRetrogression * params.alpha_r;
  return to_coordinates(params);
}

Smooth blurred(const FitError& error, double blur) {
  return [&error, blur](const Point& at, Point* slope) { return error(at, slope, blur); };
}

Minimum minimum_from(std::initializer_list<Point> starts, const Smooth& function, const Box& box) {
  Minimum best{{}, std::numeric_limits<double>::infinity()};
  for (const Point& start : starts)
    if (const Minimum found = minimize(function, box.clamp(start), box.lower, box.upper); found.value < best.value)
      best = found;
  return best;
}

// The logarithm of a parameter whose best value is zero converges slowly, and rounding decides where it stops.
// Therefore, each parameter that can be at its lower bound without increasing the error is set to that bound.
Minimum on_bounds(Minimum found, const Smooth& function, Box box) {
  for (std::size_t i = 0; i < found.at.size(); ++i) {
    if (found.at[i] == box.lower[i]) continue;
    Box narrower = box;
    narrower.upper[i] = box.lower[i];
    const Point at = narrower.clamp(found.at);
    if (function(at, nullptr) > found.value * (1 + kNear)) continue;
    const Minimum other = minimize(function, at, narrower.lower, narrower.upper);
    if (other.value > found.value * (1 + kErrorTie)) continue;
    box = narrower;
    found = other;
  }
  return found;
}

// Raises a retrogression of zero, which would stay zero because its logarithm has no slope.
Point with_retrogression(Point at) {
  for (const auto& [alpha, beta] : {std::pair(kAlphaN, kBetaN), {kAlphaR, kBetaR}})
    at[beta] = std::max(at[beta], at[alpha] + std::log(kRetrogression));
  return at;
}

// For times without noise, the minimum is in a sharp valley where one error is zero, and the search gets stuck in this
// valley. The search therefore follows the minima of an error that is blurred less and less.
Minimum minimum_of(std::span<const Observation> observations, const FitError& error, const Box& box) {
  const Smooth function = blurred(error, 0);
  const Point usual = to_coordinates({0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001});
  const Minimum best = minimum_from({usual, guess(observations)}, function, box);
  Point at = best.at;
  for (const double blur : kBlurs) at = minimize(blurred(error, blur), at, box.lower, box.upper).at;
  const Minimum sharp = minimum_from({at, with_retrogression(at)}, function, box);
  return on_bounds(sharp.value < best.value ? sharp : best, function, box);
}

// If a link was observed only a few times, minimizing the error alone would fit its parameters to noise. Of two
// explanations that are about equally good, this function returns the more plausible one.
Minimum more_plausible(const Minimum& best, const FitError& error, const Box& box) {
  const Smooth function = blurred(error, 0);
  Minimum found = best;
  // One unit of log-likelihood, in terms of the error.
  const double unit = error.optim_error(best.at) / static_cast<double>(error.size());
  const auto prefer = [&](const Box& narrower, double allowance) {
    const Minimum other = minimum_from({found.at, with_retrogression(found.at)}, function, narrower);
    if (other.value <= best.value + allowance) found = on_bounds(other, function, narrower);
  };
  const bool both = error.count(Link::kBetweenNodes) > 0 && error.count(Link::kWithinNode) > 0;
  if (both && found.at[kAlphaR] > found.at[kAlphaN]) {
    Box ordered = box;
    ordered.upper[kAlphaR] = std::max(found.at[kAlphaN] - std::log(kBetweenOverWithin), box.lower[kAlphaR]);
    prefer(ordered, unit);
  }
  for (const Link link : {Link::kWithinNode, Link::kBetweenNodes}) {
    if (error.count(link) == 0 || error.count(link) > kRarely) continue;
    Box free = box;
    free.fix_link(link);
    prefer(free, unit + FitError::kRetrogressionWeight);  // a fixed link has this penalty: its beta equals its alpha
  }
  return found;
}

}  // namespace

PerfParams least_error_params(std::span<const Observation> observations) {
  check_observations(observations);
  const FitError error(observations);
  return to_params(minimum_of(observations, error, bounds_for(observations, error)).at);
}

PerfParams fit_perf_params(std::span<const Observation> observations) {
  check_observations(observations);
  const FitError error(observations);
  const Box box = bounds_for(observations, error);
  PerfParams params = to_params(more_plausible(minimum_of(observations, error, box), error, box).at);
  if (error.count(Link::kBetweenNodes) == 0) {
    params.alpha_n = std::max(params.alpha_n, params.alpha_r * kBetweenOverWithin);
    params.beta_n = std::max(params.beta_n, params.beta_r * kBetweenOverWithin);
  }
  return params;
}

}  // namespace adaptdl::goodput
