// Tests that speedups match the goodput function, are cached, and are valid even if the hints are not.
#include "policy/base/speedup.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace speedup_test {

using namespace adaptdl;
using namespace adaptdl::sched;

namespace {

const goodput::PerfParams kPerf{0.02, 0.003, 0.06, 0.002, 0.03, 0.001, 2};
const goodput::GoodputFunction kGoodput(kPerf, {0.01, 2}, 64);
const goodput::Limits kLimits{2048, 8, 256, true};

}  // namespace

TEST_CASE("a speedup is the best goodput relative to one replica, regardless of the order of queries") {
  const SpeedupFunction speedup(kGoodput, kLimits);
  const double base = kGoodput.optimize(1, 1, kLimits).goodput;
  for (int round = 0; round < 2; ++round)
    for (const int replicas : {64, 1, 7, 2, 33})
      for (const int nodes : {1, 2, 16}) {
        if (nodes > replicas) continue;
        const double best = kGoodput.optimize(nodes, replicas, kLimits).goodput;
        CHECK(speedup.goodput(nodes, replicas) == doctest::Approx(best).epsilon(1e-12));
        CHECK(speedup(nodes, replicas) == doctest::Approx(best / base).epsilon(1e-12));
      }
  CHECK(speedup(1, 1) == 1);
  CHECK(speedup.usable());
}

TEST_CASE("zero replicas have a speedup of 0") {
  const SpeedupFunction speedup(kGoodput, kLimits);
  CHECK(speedup(0, 0) == 0);
  CHECK(speedup.goodput(0, 0) == 0);
}

TEST_CASE("negative and non-finite parameters yield a speedup of 0") {
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    for (const bool of_gradient : {false, true}) {
      goodput::PerfParams perf = kPerf;
      goodput::GradParams grad{0.01, 2};
      (of_gradient ? grad.var : perf.beta_n) = odd;
      const SpeedupFunction speedup(goodput::GoodputFunction(perf, grad, 64), kLimits);
      CHECK_FALSE(speedup.usable());
      for (const int replicas : {1, 2, 64}) CHECK(speedup(1, replicas) == 0);
    }
  }
}

TEST_CASE("contradictory limits are rejected by the constructor") {
  CHECK_THROWS_AS(SpeedupFunction(kGoodput, {32, 8, 256, true}), UsageError);
  CHECK_THROWS_AS(SpeedupFunction(kGoodput, {2048, 300, 256, true}), UsageError);
}

}  // namespace speedup_test
