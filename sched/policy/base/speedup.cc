#include "policy/base/speedup.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adaptdl::sched {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

bool sound(const goodput::GoodputFunction& goodput) {
  const goodput::PerfParams& perf = goodput.perf_params();
  const goodput::GradParams& grad = goodput.grad_params();
  const double values[] = {perf.alpha_c, perf.beta_c, perf.alpha_n, perf.beta_n, perf.alpha_r,
                           perf.beta_r,  perf.gamma,  grad.sqr,     grad.var};
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value) && value >= 0; }) &&
         perf.gamma >= 1;
}

}  // namespace

SpeedupFunction::SpeedupFunction(const goodput::GoodputFunction& goodput, const goodput::Limits& limits)
    : goodput_(goodput), limits_(limits), finite_(sound(goodput)) {
  (void)goodput_.optimize(1, 1, limits_);
}

double SpeedupFunction::goodput(int nodes, int replicas) const {
  if (replicas <= 0 || !finite_) return 0;
  std::vector<double>& row = memory_[nodes > 1];
  const auto index = static_cast<std::size_t>(replicas);
  if (index >= row.size()) row.resize(std::max(index + 1, std::size_t{16}), kUnknown);
  if (std::isnan(row[index])) {
    const double value = goodput_.optimize(nodes > 1 ? 2 : 1, replicas, limits_).goodput;
    row[index] = std::isfinite(value) ? value : 0;
  }
  return row[index];
}

double SpeedupFunction::operator()(int nodes, int replicas) const {
  const double base = goodput(1, 1);
  return base > 0 ? goodput(nodes, replicas) / base : 0;
}

bool SpeedupFunction::usable() const {
  for (int replicas = 1; replicas <= 64; ++replicas) {
    if (goodput(1, replicas) > 0) return true;
  }
  return false;
}

}  // namespace adaptdl::sched
