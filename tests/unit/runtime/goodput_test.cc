// Tests the goodput function against its formulas, and `optimize` against an exhaustive search.
#include "adaptdl/goodput.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "error_of.h"
#include "golden.h"

namespace goodput_test {

using namespace adaptdl;
using namespace adaptdl::goodput;
using ::testing::error_of;

namespace {

const PerfParams kPerf{0.1, 0.01, 0.2, 0.02, 0.05, 0.005, 2};
const GradParams kGrad{0.5, 3};

Limits limits(std::size_t max, std::optional<std::size_t> min_local = {}, std::optional<std::size_t> max_local = {},
              bool accumulation = false) {
  return {max, min_local, max_local, accumulation};
}

// Evaluates every candidate, and returns the first of the best ones.
Configuration plain_optimum(const GoodputFunction& function, int nodes, int replicas, const Limits& within) {
  const double init = static_cast<double>(function.init_batch_size());
  const double max_total = static_cast<double>(within.max_batch_size.value_or(function.init_batch_size()));
  const double min_local = static_cast<double>(within.min_local_bsz.value_or(1));
  const double max_local = static_cast<double>(within.max_local_bsz.value_or(static_cast<std::size_t>(max_total)));
  const double least = std::max(init, min_local * replicas);
  Configuration best;
  for (int i = 0; i < 50; ++i) {
    const double total = i == 0 ? least : i == 49 ? max_total : least * std::pow(max_total / least, i / 49.0);
    const double local = total / replicas;
    double accum = 0, atomic = replicas == 1 ? init : std::ceil(local - 1e-8);
    if (within.accumulation) {
      accum = std::ceil(local / max_local - 1e-8) - 1;
      if (replicas == 1 && local > init + 1e-8) accum = std::max(accum, 1.0);
      atomic = std::ceil(local / (accum + 1) - 1e-8);
    }
    const bool allowed = min_local <= atomic && atomic <= max_local;
    const double value = allowed ? function.evaluate(nodes, replicas, atomic, static_cast<int>(accum)) : 0;
    if (i == 0 || value > best.goodput * (1 + 1e-13))
      best = {value, static_cast<std::size_t>(atomic), static_cast<int>(accum)};
  }
  return best;
}

struct Case {
  GoodputFunction function;
  int nodes, replicas;
  Limits within;
};

Case random_case(std::mt19937& random) {
  const auto real = [&](double from, double to) {
    return std::exp(std::uniform_real_distribution(std::log(from), std::log(to))(random));
  };
  const auto whole = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  const PerfParams perf{real(1e-3, 1),
                        real(1e-5, 1e-1),
                        real(1e-3, 1),
                        real(1e-5, 1e-1),
                        real(1e-3, 1),
                        real(1e-5, 1e-1),
                        whole(0, 4) ? real(1, 10) : 1.0};
  const GradParams grad{whole(0, 9) ? real(1e-3, 10) : 0.0, whole(0, 9) ? real(1e-3, 1e3) : 0.0};
  const int replicas = whole(0, 3) ? whole(2, 64) : 1;
  const auto init = static_cast<std::size_t>(whole(1, 512));
  Limits within = limits(init * static_cast<std::size_t>(whole(1, 64)));
  within.accumulation = whole(0, 1);
  if (whole(0, 1)) within.min_local_bsz = static_cast<std::size_t>(whole(1, static_cast<int>(init)));
  if (whole(0, 1)) within.max_local_bsz = within.min_local_bsz.value_or(1) + static_cast<std::size_t>(whole(0, 600));
  return {{perf, grad, init}, whole(1, replicas), replicas, within};
}

}  // namespace

TEST_CASE("throughput accounts for accumulation, compute and overlapped synchronization") {
  const GoodputFunction function(kPerf, kGrad, 16);
  const double grad = 0.1 + 0.01 * 8;
  const auto step = [&](double sync) { return std::sqrt(grad * grad + sync * sync); };
  CHECK(function.throughput(1, 1, 8, 0) == doctest::Approx(8 / grad).epsilon(1e-6));
  CHECK(function.throughput(1, 4, 8, 0) == doctest::Approx(32 / step(0.05 + 2 * 0.005)).epsilon(1e-9));
  CHECK(function.throughput(2, 4, 8, 0) == doctest::Approx(32 / step(0.2 + 2 * 0.02)).epsilon(1e-9));
  CHECK(function.throughput(2, 2, 8, 0) == doctest::Approx(16 / step(0.2)).epsilon(1e-6));
  CHECK(function.throughput(2, 4, 8, 3) == doctest::Approx(128 / (3 * grad + step(0.24))).epsilon(1e-9));
}

TEST_CASE("efficiency is 1 at the initial batch size and otherwise depends on the gradient noise") {
  const GoodputFunction function(kPerf, kGrad, 16);
  CHECK(function.efficiency(16) == doctest::Approx(1));
  CHECK(function.efficiency(64) == doctest::Approx((3 + 0.5) / (3 / 4.0 + 0.5) / 4));
  CHECK(GoodputFunction(kPerf, {0, 3}, 16).efficiency(1600) == doctest::Approx(1));     // only noise
  CHECK(GoodputFunction(kPerf, {3, 0}, 16).efficiency(1600) == doctest::Approx(0.01));  // no noise
  CHECK(GoodputFunction(kPerf, {0, 0}, 16).efficiency(1600) == doctest::Approx(0.01));  // no statistics
}

TEST_CASE("optimize matches an exhaustive search") {
  std::mt19937 random(7);
  int ties = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto [function, nodes, replicas, within] = random_case(random);
    const Configuration best = function.optimize(nodes, replicas, within);
    const Configuration plain = plain_optimum(function, nodes, replicas, within);
    REQUIRE(best.goodput == doctest::Approx(plain.goodput).epsilon(1e-10));
    if (best.atomic_bsz == plain.atomic_bsz && best.accum_steps == plain.accum_steps) continue;
    // The two configurations are equally good: at an efficiency of 1, more accumulation steps of the same size neither
    // help nor hurt.
    REQUIRE(function.evaluate(nodes, replicas, static_cast<double>(best.atomic_bsz), best.accum_steps) ==
            doctest::Approx(plain.goodput).epsilon(1e-12));
    ++ties;
  }
  CHECK(ties < 100);
}

TEST_CASE("optimize respects the local bounds and never goes below the initial batch size") {
  std::mt19937 random(8);
  for (int i = 0; i < 20000; ++i) {
    const auto [function, nodes, replicas, within] = random_case(random);
    const Configuration best = function.optimize(nodes, replicas, within);
    if (best.goodput == 0) continue;
    REQUIRE(best.atomic_bsz >= within.min_local_bsz.value_or(1));
    REQUIRE(best.atomic_bsz <= within.max_local_bsz.value_or(*within.max_batch_size));
    REQUIRE(best.atomic_bsz * static_cast<std::size_t>(replicas * (best.accum_steps + 1)) >=
            function.init_batch_size());
    if (!within.accumulation) REQUIRE(best.accum_steps == 0);
  }
}

TEST_CASE("a single replica exceeds the initial batch size only with gradient accumulation") {
  const GoodputFunction noisy(kPerf, {0.001, 1000}, 128);
  CHECK(noisy.optimize(1, 1, limits(1280)).atomic_bsz == 128);
  const Configuration pieces = noisy.optimize(1, 1, limits(1280, {}, {}, true));
  CHECK(pieces.accum_steps >= 1);
  CHECK(pieces.atomic_bsz * static_cast<std::size_t>(pieces.accum_steps + 1) > 128);
  CHECK(noisy.optimize(1, 1, {}).atomic_bsz == 128);
}

TEST_CASE("optimizing many configurations at once matches optimizing each separately") {
  std::mt19937 random(9);
  for (int round = 0; round < 50; ++round) {
    const auto [function, unused_nodes, unused_replicas, within] = random_case(random);
    std::vector<int> nodes, replicas;
    for (int i = 0; i < 300; ++i) {
      replicas.push_back(static_cast<int>(random() % (i % 3 ? 40 : 3000)) + 1);
      nodes.push_back(static_cast<int>(random() % static_cast<unsigned>(replicas.back())) + 1);
    }
    const auto all = function.optimize(nodes, replicas, within);
    REQUIRE(all.size() == nodes.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Configuration one = function.optimize(nodes[i], replicas[i], within);
      REQUIRE(all[i].goodput == one.goodput);
      REQUIRE(all[i].atomic_bsz == one.atomic_bsz);
      REQUIRE(all[i].accum_steps == one.accum_steps);
    }
  }
  CHECK(GoodputFunction(kPerf, kGrad, 1).optimize(std::span<const int>(), {}, {}).empty());
}

TEST_CASE("if no batch size fits, optimize returns a goodput of 0 and the required size") {
  const Configuration none = GoodputFunction(kPerf, kGrad, 128).optimize(1, 2, limits(1280, {}, 32));
  CHECK(none.goodput == 0);
  CHECK(none.atomic_bsz == 64);
}

TEST_CASE("contradictory limits are rejected") {
  const GoodputFunction function(kPerf, kGrad, 128);
  const auto refusal = [&](const Limits& within) {
    return error_of<UsageError>([&] { function.optimize(1, 4, within); });
  };
  CHECK_GOLDEN(refusal(limits(64)));
  CHECK_GOLDEN(refusal(limits(256, 32, 16)));
  CHECK_GOLDEN(refusal(limits(256, 512)));
  CHECK_GOLDEN(refusal(limits(256, 512, 1024)));
  const std::vector<int> some{1, 2};
  CHECK_THROWS_AS(function.optimize(some, some, limits(64)), UsageError);
}

}  // namespace goodput_test
