#include "goodput/fit_error.h"

#include <cmath>

namespace adaptdl::goodput {
namespace {

constexpr double kGammaWeight = 1e-3;

constexpr std::size_t first_of(Link link) { return link == Link::kBetweenNodes ? kAlphaN : kAlphaR; }

}  // namespace

// The sums, over the observations, of the squared errors and of half the slopes of these squares.
struct FitError::Sums {
  double grad = 0, optim = 0;
  Point grad_slope{}, optim_slope{};
};

PerfParams to_params(const Point& at) {
  return {std::exp(at[kAlphaC]),
          std::exp(at[kBetaC]),
          std::exp(at[kAlphaN]),
          std::exp(at[kBetaN]),
          std::exp(at[kAlphaR]),
          std::exp(at[kBetaR]),
          at[kGamma]};
}

Point to_coordinates(const PerfParams& params) {
  return {std::log(params.alpha_c),
          std::log(params.beta_c),
          std::log(params.alpha_n),
          std::log(params.beta_n),
          std::log(params.alpha_r),
          std::log(params.beta_r),
          params.gamma};
}

FitError::FitError(std::span<const Observation> observations) {
  for (const Observation& each : observations) {
    const Link link = link_of(each.nodes, each.replicas);
    observed_.push_back({link, retrogressions(each.replicas), static_cast<double>(each.atomic_bsz),
                         std::log(each.accum_step_time), std::log(each.optim_step_time)});
    ++counts_[static_cast<std::size_t>(link)];
  }
}

// The slope of log(x + y) with respect to log x is x's share of the sum. In the same way, the overlap divides the slope
// of log T_optim between log T_grad and log T_sync.
void FitError::add(const Observed& each, const PerfParams& params, Sums& sums) const {
  const bool between = each.link == Link::kBetweenNodes, linked = each.link != Link::kNone;
  const double alpha = !linked ? kZero : between ? params.alpha_n : params.alpha_r;
  const double beta = !linked ? kZero : between ? params.beta_n : params.beta_r;
  const double grad = params.alpha_c + params.beta_c * each.bsz;
  const double sync = alpha + beta * each.retrogressions;
  const double log_grad = std::log(grad), log_sync = std::log(sync);
  const double apart = params.gamma * (log_sync - log_grad);
  const double small = std::exp(-std::fabs(apart));
  const double log_optim = std::max(log_grad, log_sync) + std::log1p(small) / params.gamma;
  const double sync_share = (apart > 0 ? 1 : small) / (1 + small);

  const double grad_error = log_grad - each.log_grad, optim_error = log_optim - each.log_optim;
  sums.grad += grad_error * grad_error;
  sums.optim += optim_error * optim_error;
  const double alpha_share = params.alpha_c / grad;
  sums.grad_slope[kAlphaC] += grad_error * alpha_share;
  sums.grad_slope[kBetaC] += grad_error * (1 - alpha_share);
  sums.optim_slope[kAlphaC] += optim_error * (1 - sync_share) * alpha_share;
  sums.optim_slope[kBetaC] += optim_error * (1 - sync_share) * (1 - alpha_share);
  sums.optim_slope[kGamma] +=
      optim_error * ((1 - sync_share) * log_grad + sync_share * log_sync - log_optim) / params.gamma;
  if (!linked) return;
  const std::size_t first = first_of(each.link);
  sums.optim_slope[first] += optim_error * sync_share * alpha / sync;
  sums.optim_slope[first + 1] += optim_error * sync_share * (1 - alpha / sync);
}

double FitError::operator()(const Point& at, Point* slope, double blur) const {
  const PerfParams params = to_params(at);
  Sums sums;
  for (const Observed& each : observed_) add(each, params, sums);
  const auto number = static_cast<double>(observed_.size());
  const double grad_error = std::sqrt(sums.grad / number + blur * blur);
  const double optim_error = std::sqrt(sums.optim / number + blur * blur);
  double value = grad_error + optim_error + kGammaWeight * (params.gamma - 1) * (params.gamma - 1);
  if (slope) {
    // The square root has no slope where the error is zero; a slope of zero keeps the point there.
    const double grad_scale = grad_error > 0 ? 1 / (number * grad_error) : 0;
    const double optim_scale = optim_error > 0 ? 1 / (number * optim_error) : 0;
    for (std::size_t i = 0; i < slope->size(); ++i)
      (*slope)[i] = sums.grad_slope[i] * grad_scale + sums.optim_slope[i] * optim_scale;
    (*slope)[kGamma] += 2 * kGammaWeight * (params.gamma - 1);
  }
  for (const Link link : {Link::kBetweenNodes, Link::kWithinNode}) {
    if (count(link) == 0) continue;
    const std::size_t alpha = first_of(link), beta = alpha + 1;
    const double ratio = std::exp(at[beta] - at[alpha]);
    const double penalty = kRetrogressionWeight * ratio * ratio;
    value += penalty;
    if (!slope) continue;
    (*slope)[beta] += 2 * penalty;
    (*slope)[alpha] -= 2 * penalty;
  }
  return value;
}

double FitError::optim_error(const Point& at) const {
  const PerfParams params = to_params(at);
  Sums sums;
  for (const Observed& each : observed_) add(each, params, sums);
  return std::sqrt(sums.optim / static_cast<double>(observed_.size()));
}

}  // namespace adaptdl::goodput
