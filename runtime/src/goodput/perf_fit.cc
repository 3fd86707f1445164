// Fits the seven parameters of the step time.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>

#include "adaptdl/goodput.h"
#include "goodput/fit_error.h"
#include "goodput/minimize.h"

namespace adaptdl::goodput {
namespace {

constexpr double kUnbounded = 1e9;          // seconds
constexpr double kBetweenOverWithin = 1.1;  // a link between nodes costs at least so many times one within a node
constexpr double kBlurs[] = {1e-1, 1e-2, 1e-3};
constexpr std::size_t kRarely = 2;  // configurations, as many as a link has parameters
// In units of log-likelihood, how much worse a more plausible explanation may be.
constexpr double kOrderAllowance = 1;
constexpr double kFreeAllowance = 0.2;

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
  if (observations.empty()) throw UsageError("fit of step times: there are no observations");
  for (const Observation& each : observations) {
    const bool sized = each.nodes >= 1 && each.replicas >= each.nodes && each.atomic_bsz >= 1;
    const auto timed = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
    if (!sized || !timed(each.accum_step_time) || !timed(each.optim_step_time))
      throw UsageError(
          fmt::format("fit of step times: {} nodes, {} replicas, batch size {}: {} s and {} s are no step times",
                      each.nodes, each.replicas, each.atomic_bsz, each.accum_step_time, each.optim_step_time));
  }
}

// What the observations cannot tell is fixed.
Box bounds_for(std::span<const Observation> observations, const FitError& error) {
  const double least = std::log(kZero), most = std::log(kUnbounded);
  Box box{{least, least, least, least, least, least, 1}, {most, most, most, most, most, most, 10}};
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

// A guess from the data, whatever the scale of their times: a line through the compute times, and what
// synchronisation adds to them on average.
Point guess(std::span<const Observation> observations) {
  double weight = 0, size = 0, time = 0, size_size = 0, size_time = 0;
  double extra[3] = {}, number[3] = {};
  for (const Observation& each : observations) {
    const double bsz = static_cast<double>(each.atomic_bsz), seconds = each.accum_step_time;
    const double w = 1 / (seconds * seconds);  // relative errors
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
  params.beta_n = 0.05 * params.alpha_n;
  params.beta_r = 0.05 * params.alpha_r;
  return to_coordinates(params);
}

// Times without noise have their minimum on the edge where an error is zero, where the search gets stuck. So it goes
// there along the minima of ever less blurred errors.
Minimum least_of(std::initializer_list<Point> starts, const FitError& error, const Smooth& function, const Box& box) {
  Minimum least{{}, std::numeric_limits<double>::infinity()};
  for (const Point& start : starts)
    if (const Minimum found = minimize(function, start, box.lower, box.upper); found.value < least.value) least = found;
  Point at = least.at;
  for (const double blur : kBlurs)
    at = minimize([&](const Point& point, Point* slope) { return error(point, slope, blur); }, at, box.lower, box.upper)
             .at;
  const Minimum sharp = minimize(function, at, box.lower, box.upper);
  return sharp.value < least.value ? sharp : least;
}

// The least error alone would fit a link that was seen a few times to the noise of those times. Of two explanations
// that are about as good, the more plausible one is taken.
Minimum more_plausible(const Minimum& least, const FitError& error, const Smooth& function, const Box& box) {
  Minimum found = least;
  const double unit = error.optim_error(least.at) / static_cast<double>(error.size());
  const auto prefer = [&](const Box& narrower, double allowance) {
    const Minimum other = minimize(function, narrower.clamp(found.at), narrower.lower, narrower.upper);
    if (other.value <= least.value + allowance) found = other;
  };
  const bool both = error.count(Link::kBetweenNodes) > 0 && error.count(Link::kWithinNode) > 0;
  if (both && found.at[kAlphaR] > found.at[kAlphaN]) {
    Box ordered = box;
    ordered.upper[kAlphaR] = std::max(found.at[kAlphaN] - std::log(kBetweenOverWithin), box.lower[kAlphaR]);
    prefer(ordered, kOrderAllowance * unit);
  }
  for (const Link link : {Link::kWithinNode, Link::kBetweenNodes}) {
    if (error.count(link) == 0 || error.count(link) > kRarely) continue;
    Box free = box;
    free.fix_link(link);
    prefer(free, kFreeAllowance * unit + FitError::kRetrogressionWeight);  // which a fixed link counts in full
  }
  return found;
}

}  // namespace

PerfParams fit_perf_params(std::span<const Observation> observations) {
  check_observations(observations);
  const FitError error(observations);
  const Smooth function = [&error](const Point& at, Point* slope) { return error(at, slope); };
  const Box box = bounds_for(observations, error);
  const Point usual = to_coordinates({0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001});
  const Minimum least = least_of({box.clamp(usual), box.clamp(guess(observations))}, error, function, box);
  PerfParams params = to_params(more_plausible(least, error, function, box).at);
  if (error.count(Link::kBetweenNodes) == 0) {
    params.alpha_n = std::max(params.alpha_n, params.alpha_r * kBetweenOverWithin);
    params.beta_n = std::max(params.beta_n, params.beta_r * kBetweenOverWithin);
  }
  return params;
}

}  // namespace adaptdl::goodput
