#include "adaptdl/goodput.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "goodput/step_time.h"

namespace adaptdl::goodput {
namespace {

constexpr int kCandidates = 50;     // total batch sizes that `optimize` compares
constexpr double kRounding = 1e-8;  // a size that exceeds an integer by less than this is rounded down
constexpr double kTie = 1e-12;      // relative tolerance; exceeds the rounding errors in goodput bounds
constexpr int kTangents = 2;
constexpr int kStride = 4;  // only every kStride-th candidate is considered for a tangent

using Row = std::array<double, kCandidates>;

// Rounds up, for 0 <= value < 2^51. Uses only additions, which compilers can vectorize for every processor.
inline double round_up(double value) noexcept {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: a sum with this number has no bits left for a fraction
  const double nearest = (value + kShift) - kShift;
  return nearest + (nearest < value ? 1.0 : 0.0);
}

double sync_time(const PerfParams& perf, int nodes, int replicas) noexcept {
  const double times = retrogressions(replicas);
  switch (link_of(nodes, replicas)) {
    case Link::kBetweenNodes:
      return perf.alpha_n + perf.beta_n * times;
    case Link::kWithinNode:
      return perf.alpha_r + perf.beta_r * times;
    default:
      return kZero + kZero * times;
  }
}

// T_optim as a function of T_grad, for one synchronization time. The computation uses logarithms because powers take
// twice as long.
class Overlap {
 public:
  Overlap(double sync, double gamma) noexcept : sync_(sync), gamma_(gamma), log_sync_(std::log(sync)) {}

  double operator()(double grad) const noexcept { return value(grad, smaller(grad)); }

  // The function is convex, so its tangent at any T_grad is below it everywhere.
  struct Tangent {
    double at, value, slope;
    double operator()(double grad) const noexcept { return value + slope * (grad - at); }
  };
  Tangent tangent(double grad) const noexcept {
    const double small = smaller(grad), touched = value(grad, small);
    const double share = (grad < sync_ ? small : 1) / (1 + small);
    return {grad, touched, grad > 0 ? share * touched / grad : 0};
  }

 private:
  // Returns the smaller of the two gamma-th powers, relative to the larger one.
  double smaller(double grad) const noexcept { return std::exp(-gamma_ * std::fabs(log_sync_ - std::log(grad))); }
  double value(double grad, double small) const noexcept {
    return std::max(grad, sync_) * std::exp(std::log(1 + small) / gamma_);
  }

  double sync_, gamma_, log_sync_;
};

// The progress of a step, in samples at the initial batch size: total batch size x efficiency.
struct StepProgress {
  double init, sqr, var;
  double noise(double batch_size) const noexcept { return var * init + sqr * batch_size; }
  // Valid for noise > 0. Otherwise, the progress is `init` for every batch size.
  double of_noisy(double batch_size, double noise) const noexcept { return init * (var + sqr) * batch_size / noise; }
};

// The limits with all defaults filled in, as floating-point numbers.
struct Bounds {
  double init, max_total, min_local, max_local;
  bool accumulation;
};

Bounds checked_bounds(const Limits& limits, std::size_t init_batch_size) {
  const std::size_t max_total = limits.max_batch_size.value_or(init_batch_size);
  const std::size_t min_local = std::max<std::size_t>(limits.min_local_bsz.value_or(1), 1);
  const std::size_t max_local = limits.max_local_bsz.value_or(max_total);
  if (max_total < init_batch_size)
    throw UsageError(
        fmt::format("the maximum total batch size {} is below the initial batch size {}", max_total, init_batch_size));
  if (max_local < min_local)
    throw UsageError(fmt::format("the maximum local batch size {} is below the minimum {}", max_local, min_local));
  if (min_local > max_total)
    throw UsageError(
        fmt::format("the minimum local batch size {} is above the maximum total batch size {}", min_local, max_total));
  return {static_cast<double>(init_batch_size), static_cast<double>(max_total), static_cast<double>(min_local),
          static_cast<double>(max_local), limits.accumulation};
}

// Sets the candidates' total batch sizes, in geometric steps with both ends exact.
void spread(double min, double max, Row& totals) noexcept {
  double step = std::exp(std::log(max / min) / (kCandidates - 1));
  totals[0] = min;
  for (int done = 1; done < kCandidates; done *= 2, step *= step)
    for (int i = 0; i < std::min(done, kCandidates - done); ++i) totals[done + i] = totals[i] * step;
  totals[kCandidates - 1] = max;
}

// Splits each total batch size among the replicas and into atomic batches.
void split(const Bounds& bounds, int replicas, const Row& totals, Row& atomic, Row& accum) noexcept {
  if (!bounds.accumulation) {
    for (int i = 0; i < kCandidates; ++i) {
      accum[i] = 0;
      atomic[i] = replicas == 1 ? bounds.init : round_up(totals[i] / replicas - kRounding);
    }
    return;
  }
  const double twice_from = replicas == 1 ? bounds.init + kRounding : INFINITY;
  for (int i = 0; i < kCandidates; ++i) {
    const double local = totals[i] / replicas;
    const double count = std::max(round_up(local / bounds.max_local - kRounding), local > twice_from ? 2.0 : 1.0);
    accum[i] = count - 1;
    atomic[i] = round_up(local / count - kRounding);
  }
}

// Returns the best among every kStride-th candidate according to `time`, which contains lower bounds on the step times.
int promising(const Row& made, const Row& time) noexcept {
  int best = 0;
  double highest = 0;
  for (int i = 0; i < kCandidates; i += kStride)
    if (const double bound = made[i] / time[i]; bound > highest) best = i, highest = bound;
  return best;
}

// Returns the best of the candidates `totals`. The exact time, which requires logarithms, is needed for only a few of
// them: the tangent at a good candidate bounds the times of all others from below, and most are worse even with these
// lower bounds.
Configuration best_of(const PerfParams& perf, const StepProgress& progress, const Bounds& bounds, int nodes,
                      int replicas, const Row& totals) noexcept {
  Row atomic, accum, noise, made, grad, time;
  split(bounds, replicas, totals, atomic, accum);
  for (int i = 0; i < kCandidates; ++i) {
    grad[i] = perf.alpha_c + perf.beta_c * atomic[i];
    const double total = replicas * atomic[i] * (accum[i] + 1);
    noise[i] = progress.noise(total);
    made[i] = progress.of_noisy(total, noise[i]);
  }
  // Separate loops, which compilers can vectorize.
  for (int i = 0; i < kCandidates; ++i) made[i] = noise[i] > 0 ? made[i] : progress.init;
  for (int i = 0; i < kCandidates; ++i)
    made[i] = (atomic[i] < bounds.min_local) | (atomic[i] > bounds.max_local) ? 0 : made[i];

  const double sync = sync_time(perf, nodes, replicas);
  const Overlap overlap(sync, perf.gamma);
  for (int i = 0; i < kCandidates; ++i) time[i] = accum[i] * grad[i] + std::max(grad[i], sync);
  double enough = 0;
  for (int round = 0; round < kTangents; ++round) {
    const int guess = promising(made, time);
    const Overlap::Tangent tangent = overlap.tangent(grad[guess]);
    for (int i = 0; i < kCandidates; ++i) time[i] = std::max(time[i], accum[i] * grad[i] + tangent(grad[i]));
    enough = std::max(enough, made[guess] / (accum[guess] * grad[guess] + tangent.value) * (1 - kTie));
  }

  Configuration best{0, static_cast<std::size_t>(atomic[0]), static_cast<int>(accum[0])};
  for (int i = 0; i < kCandidates; ++i) {
    if (made[i] < enough * time[i] || (i > 0 && atomic[i] == atomic[i - 1] && accum[i] == accum[i - 1])) continue;
    const double goodput = made[i] / (accum[i] * grad[i] + overlap(grad[i]));
    if (goodput <= best.goodput) continue;
    best = {goodput, static_cast<std::size_t>(atomic[i]), static_cast<int>(accum[i])};
    enough = std::max(enough, goodput * (1 - kTie));
  }
  return best;
}

}  // namespace

GoodputFunction::GoodputFunction(const PerfParams& perf, const GradParams& grad, std::size_t init_batch_size) noexcept
    : perf_(perf), grad_(grad), init_batch_size_(init_batch_size) {}

double GoodputFunction::throughput(int nodes, int replicas, double atomic_bsz, int accum_steps) const noexcept {
  const double grad = perf_.alpha_c + perf_.beta_c * atomic_bsz;
  const Overlap overlap(sync_time(perf_, nodes, replicas), perf_.gamma);
  return replicas * atomic_bsz * (accum_steps + 1) / (accum_steps * grad + overlap(grad));
}

double GoodputFunction::efficiency(double batch_size) const noexcept {
  const StepProgress progress{static_cast<double>(init_batch_size_), grad_.sqr, grad_.var};
  const double noise = progress.noise(batch_size);
  return (noise > 0 ? progress.of_noisy(batch_size, noise) : progress.init) / batch_size;
}

double GoodputFunction::evaluate(int nodes, int replicas, double atomic_bsz, int accum_steps) const noexcept {
  return throughput(nodes, replicas, atomic_bsz, accum_steps) * efficiency(replicas * atomic_bsz * (accum_steps + 1));
}

Configuration GoodputFunction::optimize(int nodes, int replicas, const Limits& limits) const {
  const Bounds bounds = checked_bounds(limits, init_batch_size_);
  Row totals;
  spread(std::max(bounds.init, bounds.min_local * replicas), bounds.max_total, totals);
  return best_of(perf_, {bounds.init, grad_.sqr, grad_.var}, bounds, nodes, replicas, totals);
}

std::vector<Configuration> GoodputFunction::optimize(std::span<const int> nodes, std::span<const int> replicas,
                                                     const Limits& limits) const {
  const Bounds bounds = checked_bounds(limits, init_batch_size_);
  const StepProgress progress{bounds.init, grad_.sqr, grad_.var};
  std::vector<Configuration> found(nodes.size());
  // The number of replicas affects only the lower end of the totals, and the number of nodes affects only the kind of
  // link.
  Row totals;
  double spread_from = 0;
  constexpr int kKnown = 1024;  // results are kept for fewer replicas than this
  std::vector<int> known(2 * kKnown, -1);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    int* const same = replicas[i] < kKnown ? &known[2 * replicas[i] + (nodes[i] > 1)] : nullptr;
    if (same && *same >= 0) {
      found[i] = found[*same];
      continue;
    }
    const double min_total = std::max(bounds.init, bounds.min_local * replicas[i]);
    if (min_total != spread_from) spread(min_total, bounds.max_total, totals);
    spread_from = min_total;
    found[i] = best_of(perf_, progress, bounds, nodes[i], replicas[i], totals);
    if (same) *same = static_cast<int>(i);
  }
  return found;
}

}  // namespace adaptdl::goodput
