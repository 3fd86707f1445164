// Tests the fit of the step time model's parameters to step times that the model itself generates.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "adaptdl/goodput.h"
#include "error_of.h"
#include "golden.h"
#include "goodput/fit_error.h"

namespace perf_fit_test {

using namespace adaptdl;
using namespace adaptdl::goodput;
using ::testing::error_of;

namespace {

const PerfParams kTrue{0.08, 0.003, 0.12, 0.004, 0.03, 0.001, 1.6};

double optim_time(const PerfParams& perf, int nodes, int replicas, double bsz) {
  return replicas * bsz / GoodputFunction(perf, {}, 1).throughput(nodes, replicas, bsz, 0);
}

Observation observe(const PerfParams& perf, int nodes, int replicas, std::size_t bsz) {
  const auto size = static_cast<double>(bsz);
  return {nodes, replicas, bsz, perf.alpha_c + perf.beta_c * size, optim_time(perf, nodes, replicas, size)};
}

std::vector<Observation> observe_all(const PerfParams& perf) {
  std::vector<Observation> all;
  for (const auto& [nodes, replicas] : {std::pair(1, 1), {1, 2}, {1, 4}, {2, 2}, {2, 8}, {4, 16}})
    for (const std::size_t bsz : {16, 32, 64, 128}) all.push_back(observe(perf, nodes, replicas, bsz));
  return all;
}

}  // namespace

TEST_CASE("the fit predicts step times of unobserved configurations") {
  const PerfParams fitted = fit_perf_params(observe_all(kTrue));
  for (const auto& [nodes, replicas] : {std::pair(1, 3), {2, 6}, {8, 32}})
    for (const double bsz : {24.0, 256.0})
      CHECK(optim_time(fitted, nodes, replicas, bsz) ==
            doctest::Approx(optim_time(kTrue, nodes, replicas, bsz)).epsilon(0.03));
  CHECK(fitted.alpha_c == doctest::Approx(kTrue.alpha_c).epsilon(0.01));
  CHECK(fitted.beta_c == doctest::Approx(kTrue.beta_c).epsilon(0.01));
}

TEST_CASE("the fit is accurate for times from microseconds to hours") {
  for (const double scale : {1e-4, 1e4}) {
    const PerfParams scaled{
        kTrue.alpha_c * scale, kTrue.beta_c * scale, kTrue.alpha_n * scale, kTrue.beta_n * scale, kTrue.alpha_r * scale,
        kTrue.beta_r * scale,  kTrue.gamma};
    const PerfParams fitted = fit_perf_params(observe_all(scaled));
    CHECK(optim_time(fitted, 8, 32, 48) == doctest::Approx(optim_time(scaled, 8, 32, 48)).epsilon(0.05));
  }
}

TEST_CASE("the gradient of the fit error matches finite differences") {
  const FitError error(observe_all(kTrue));
  std::mt19937 random(3);
  std::uniform_real_distribution<double> log_time(-7, 1), gamma(1.01, 9);
  for (int round = 0; round < 50; ++round) {
    Point at;
    for (double& each : at) each = log_time(random);
    at[kGamma] = gamma(random);
    Point slope;
    error(at, &slope);
    for (std::size_t i = 0; i < at.size(); ++i) {
      constexpr double kStep = 1e-6;
      Point less = at, more = at;
      less[i] -= kStep;
      more[i] += kStep;
      const double difference = (error(more, nullptr) - error(less, nullptr)) / (2 * kStep);
      CHECK(slope[i] == doctest::Approx(difference).epsilon(1e-5).scale(1));
    }
  }
}

TEST_CASE("parameters without observations get optimistic values") {
  std::vector<Observation> single;
  for (const std::size_t bsz : {16, 32, 64}) single.push_back(observe(kTrue, 1, 1, bsz));
  const PerfParams alone = fit_perf_params(single);
  for (const double each : {alone.alpha_n, alone.beta_n, alone.alpha_r, alone.beta_r})
    CHECK(each == doctest::Approx(1e-8).epsilon(0.2));

  for (const std::size_t bsz : {16, 32, 64}) single.push_back(observe(kTrue, 1, 2, bsz));
  const PerfParams node = fit_perf_params(single);
  CHECK(node.alpha_r == doctest::Approx(kTrue.alpha_r).epsilon(0.1));
  CHECK(node.beta_r == doctest::Approx(1e-8));
  CHECK(node.alpha_n == doctest::Approx(1.1 * node.alpha_r));

  const PerfParams one_size = fit_perf_params(std::vector<Observation>{{1, 1, 32, 0.2, 0.2}, {1, 2, 32, 0.4, 0.5}});
  CHECK(one_size.alpha_c == doctest::Approx(0.15));
}

TEST_CASE("the fit does not overfit a link that was observed once") {
  const PerfParams hidden{0.06, 0.0045, 0.3, 0.01, 0.001, 1e-5, 3};
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 0.1);
  std::vector<Observation> all;
  for (const int nodes : {2, 4, 8, 16})
    for (const std::size_t bsz : {20, 40, 80, 160}) {
      all.push_back(observe(hidden, nodes, 2 * nodes, bsz));
      all.back().optim_step_time *= std::exp(noise(random));
    }
  Observation once = observe(hidden, 1, 4, 200);
  once.optim_step_time *= 1.02;
  all.push_back(once);
  const PerfParams fitted = fit_perf_params(all);
  CHECK(optim_time(fitted, 1, 4, 20) == doctest::Approx(optim_time(hidden, 1, 4, 20)).epsilon(0.1));
  CHECK(optim_time(fitted, 16, 64, 40) == doctest::Approx(optim_time(hidden, 16, 64, 40)).epsilon(0.25));
}

TEST_CASE("the cost of a link is fitted to a single clear observation") {
  std::vector<Observation> all;
  for (const std::size_t bsz : {16, 32, 64, 128}) all.push_back(observe(kTrue, 1, 1, bsz));
  all.push_back(observe(kTrue, 2, 2, 32));
  CHECK(optim_time(fit_perf_params(all), 2, 2, 64) == doctest::Approx(optim_time(kTrue, 2, 2, 64)).epsilon(0.1));
}

TEST_CASE("the fit is stable under rounding errors in the times") {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.1);
  std::uniform_real_distribution<double> last_bits(-1e-12, 1e-12);
  for (int round = 0; round < 50; ++round) {
    // beta_r is negligible, because only two observations depend on it and the error hardly distinguishes small values.
    std::vector<Observation> all;
    for (const auto& [nodes, replicas] : {std::pair(1, 1), {1, 4}, {2, 2}, {2, 8}, {4, 16}, {8, 24}})
      for (const std::size_t bsz : {16, 32, 64, 128}) {
        if (replicas == 4 && bsz > 32) continue;
        all.push_back(observe({0.08, 0.003, 0.12, 0.004, 0.1, 1e-8, 1.6}, nodes, replicas, bsz));
        all.back().accum_step_time *= std::exp(noise(random));
        all.back().optim_step_time *= std::exp(noise(random));
      }
    const PerfParams fitted = fit_perf_params(all);
    for (int repetition = 0; repetition < 4; ++repetition) {
      std::vector<Observation> other = all;
      for (Observation& each : other) {
        each.accum_step_time *= 1 + last_bits(random);
        each.optim_step_time *= 1 + last_bits(random);
      }
      const PerfParams again = fit_perf_params(other);
      for (const auto& [nodes, replicas] : {std::pair(1, 8), {1, 2}, {2, 4}, {16, 64}})
        REQUIRE(std::fabs(optim_time(again, nodes, replicas, 48) / optim_time(fitted, nodes, replicas, 48) - 1) < 1e-4);
    }
  }
}

TEST_CASE("a single observation is enough for a fit, which reproduces its times") {
  const PerfParams fitted = fit_perf_params(std::vector<Observation>{{1, 1, 32, 0.2, 0.2}});
  CHECK(optim_time(fitted, 1, 1, 32) == doctest::Approx(0.2).epsilon(0.001));
}

TEST_CASE("the parameters are within their bounds for arbitrary times") {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> log_time(-12, 6);
  for (int round = 0; round < 200; ++round) {
    std::vector<Observation> all;
    const int number = 1 + round % 20;
    for (int i = 0; i < number; ++i) {
      const int replicas = 1 + static_cast<int>(random() % 16);
      const int nodes = 1 + static_cast<int>(random() % static_cast<unsigned>(replicas));
      all.push_back({nodes, replicas, 1 + random() % 100, std::exp(log_time(random)), std::exp(log_time(random))});
    }
    const PerfParams fitted = fit_perf_params(all);
    for (const double each :
         {fitted.alpha_c, fitted.beta_c, fitted.alpha_n, fitted.beta_n, fitted.alpha_r, fitted.beta_r}) {
      REQUIRE(std::isfinite(each));
      REQUIRE(each >= 1e-8 * (1 - 1e-12));
    }
    REQUIRE(fitted.gamma >= 1);
    REQUIRE(fitted.gamma <= 10);
    const PerfParams again = fit_perf_params(all);
    REQUIRE(again.alpha_c == fitted.alpha_c);
    REQUIRE(again.gamma == fitted.gamma);
  }
}

TEST_CASE("missing and invalid observations are rejected") {
  CHECK_GOLDEN(error_of<UsageError>([] { fit_perf_params({}); }));
  const auto refusal = [](const Observation& each) {
    return error_of<UsageError>([&] { fit_perf_params({&each, 1}); });
  };
  CHECK_GOLDEN(refusal({1, 1, 32, 0, 0.2}));
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    CHECK(refusal({1, 1, 32, 0.2, wrong}).find("invalid observation") != std::string::npos);
  CHECK_GOLDEN(refusal({2, 1, 32, 0.2, 0.2}));
}

}  // namespace perf_fit_test
