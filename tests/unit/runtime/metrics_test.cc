// Tests what a job measures: mean step times, the goodput function fitted to them, hints, and the checkpointed state.
#include "adaptdl/metrics.h"

#include <doctest/doctest.h>

#include <cmath>

#include "checkpoint_support.h"
#include "metrics/profile.h"

namespace metrics_test {

using namespace adaptdl;
using adaptdl::goodput::Observation;
using adaptdl::metrics::Profile;
using checkpoint_test::Directory;
using nlohmann::json;

namespace {

// Discards all measurements before and after a test.
struct Fresh {
  Fresh() { metrics::reset(); }
  ~Fresh() { metrics::reset(); }
};

Observation only(const Profile& profile) {
  const auto all = profile.observations();
  REQUIRE(all.size() == 1);
  return all.front();
}

void measure_something() {
  for (const std::size_t bsz : {16, 32, 64})
    for (int i = 0; i < 20; ++i) {
      const double seconds = 0.1 + 0.002 * static_cast<double>(bsz);
      metrics::record_step(1, 1, bsz, seconds, 0.0);
      metrics::record_step(2, 2, bsz, seconds + 0.05, 0.05);
      metrics::record_step(2, 2, bsz, seconds, {});
    }
}

void fit() {
  metrics::begin_fit();
  metrics::finish_fit();
}

}  // namespace

TEST_CASE("steps with and without synchronization both contribute to the time of a pass") {
  Profile profile;
  profile.record(2, 4, 32, 0.5, 0.2);
  profile.record(2, 4, 32, 0.4, {});
  profile.record(2, 4, 32, 0.5, {});
  const Observation mean = only(profile);
  CHECK(mean.nodes == 2);
  CHECK(mean.replicas == 4);
  CHECK(mean.atomic_bsz == 32);
  CHECK(mean.accum_step_time == doctest::Approx(0.4));
  CHECK(mean.optim_step_time == doctest::Approx(0.5));
  CHECK(profile.max_replicas() == 4);
}

TEST_CASE("a configuration without a valid synchronized step yields no observation") {
  Profile profile;
  profile.record(1, 2, 32, 0.4, {});
  CHECK(profile.observations().empty());
  profile.record(1, 3, 32, 0.0, 0.0);  // the clock did not advance
  CHECK(profile.observations().empty());
}

TEST_CASE("the time of an unusually slow step is capped at three times the mean") {
  Profile profile;
  for (int i = 0; i < 100; ++i) profile.record(1, 2, 32, 0.1, 0.02);
  profile.record(1, 2, 32, 500, 100);
  CHECK(only(profile).optim_step_time == doctest::Approx((100 * 0.1 + 0.3) / 101));
  CHECK(only(profile).accum_step_time == doctest::Approx((100 * 0.08 + 0.24) / 101));
}

TEST_CASE("a slow first step does not distort the mean") {
  for (const int steps : {2, 5, 10, 50}) {
    Profile profile;
    profile.record(1, 1, 32, 60, 0.0);
    for (int i = 1; i < steps; ++i) profile.record(1, 1, 32, 0.1, 0.0);
    CHECK(only(profile).optim_step_time == doctest::Approx((steps - 1 + 3) * 0.1 / steps));
  }
}

TEST_CASE("invalid step times are ignored") {
  Profile profile;
  profile.record(1, 1, 32, 0.1, 0.0);
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    profile.record(1, 1, 32, wrong, 0.0);
  profile.record(1, 1, 32, 0.1, 5.0);  // the waiting time cannot exceed the step time
  CHECK(only(profile).optim_step_time == doctest::Approx(0.1));
  CHECK(only(profile).accum_step_time == doctest::Approx(0.05));
}

TEST_CASE("the mean adapts to a job that slows down") {
  Profile profile;
  for (int i = 0; i < 100000; ++i) profile.record(1, 1, 32, 0.1, 0.0);
  for (int i = 0; i < 5000; ++i) profile.record(1, 1, 32, 0.2, 0.0);
  CHECK(only(profile).optim_step_time == doctest::Approx(0.2).epsilon(0.01));
}

TEST_CASE("with a fixed batch size, the goodput function needs no gradient statistics") {
  const Fresh fresh;
  measure_something();
  fit();
  metrics::set_batch_sizes({16, {.max_batch_size = 64}});
  CHECK_FALSE(metrics::goodput_function());
  metrics::set_batch_sizes({16, {}});
  const auto function = metrics::goodput_function();
  REQUIRE(function);
  CHECK(function->efficiency(16) == doctest::Approx(1));
  CHECK(function->efficiency(18) == doctest::Approx(1));
  CHECK(metrics::hints().at("gradParams").is_null());
}

TEST_CASE("the goodput function is available once step times, gradients and batch sizes are known") {
  const Fresh fresh;
  fit();  // there are no measurements
  CHECK_FALSE(metrics::fit_pending());
  measure_something();
  CHECK_FALSE(metrics::goodput_function());
  metrics::begin_fit();
  CHECK(metrics::fit_pending());
  metrics::begin_fit();  // only one fit runs at a time
  metrics::finish_fit();
  CHECK_FALSE(metrics::fit_pending());
  CHECK_FALSE(metrics::goodput_function());
  metrics::set_grad_params("one", {1, 20});
  CHECK_FALSE(metrics::goodput_function());
  metrics::set_batch_sizes({16, {}});
  const auto function = metrics::goodput_function();
  REQUIRE(function);
  CHECK(function->init_batch_size() == 16);
  CHECK(function->throughput(1, 1, 48, 0) == doctest::Approx(48 / (0.1 + 0.002 * 48)).epsilon(0.02));
  CHECK(function->throughput(2, 2, 32, 0) == doctest::Approx(64 / (0.1 + 0.002 * 32 + 0.05)).epsilon(0.05));
}

TEST_CASE("gradient parameters of several models add up, and the highest progress is used") {
  const Fresh fresh;
  CHECK(metrics::progress() == 0);
  measure_something();
  fit();
  metrics::set_batch_sizes({16, {}});
  metrics::set_grad_params("one", {1, 20});
  metrics::set_grad_params("other", {9, 9});
  metrics::set_grad_params("other", {2, 5});
  metrics::set_progress("one", 70);
  metrics::set_progress("other", 30);
  CHECK(metrics::goodput_function()->grad_params().sqr == 3);
  CHECK(metrics::goodput_function()->grad_params().var == 25);
  CHECK(metrics::progress() == 70);
}

TEST_CASE("hints contain every key of the protocol, with null for unknown values") {
  const Fresh fresh;
  CHECK(metrics::hints() == json{{"initBatchSize", nullptr},
                                 {"localBszBounds", nullptr},
                                 {"globalBatchSize", nullptr},
                                 {"maxBatchSize", nullptr},
                                 {"maxProfiledReplicas", nullptr},
                                 {"gradientAccumulation", nullptr},
                                 {"gradParams", nullptr},
                                 {"perfParams", nullptr},
                                 {"progress", 0.0},
                                 {"targetProgress", nullptr}});
  CHECK(!metrics::target_progress());
  measure_something();
  fit();
  metrics::set_batch_sizes({16, {256, {}, 64, true}});
  metrics::set_grad_params("model", {1, 20});
  metrics::set_progress("model", 70);
  metrics::set_target_progress(1000);
  json hints = metrics::hints();
  const json perf = hints["perfParams"];
  for (const char* name : {"alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma"})
    CHECK(perf.at(name).get<double>() > 0);
  CHECK(perf.size() == 7);
  hints.erase("perfParams");
  CHECK(hints == json{{"initBatchSize", 16},
                      {"localBszBounds", {1, 64}},
                      {"globalBatchSize", nullptr},
                      {"maxBatchSize", 256},
                      {"maxProfiledReplicas", 2},
                      {"gradientAccumulation", true},
                      {"gradParams", {{"norm", 1.0}, {"var", 20.0}}},
                      {"progress", 70.0},
                      {"targetProgress", 1000.0}});
  CHECK(metrics::target_progress() == 1000.0);
}

TEST_CASE("a checkpoint restores all measurements") {
  const Fresh fresh;
  const Directory directory;
  measure_something();
  metrics::record_step(1, 4, 16, 0.3, 0.1);  // too few steps for a mean
  metrics::record_step(1, 4, 16, 0.4, 0.1);
  fit();
  metrics::set_batch_sizes({16, {256, 8, {}, true}});
  metrics::set_grad_params("a \"model\"", {1, 20});
  metrics::set_progress("a \"model\"", 70.5);
  metrics::set_target_progress(1000);
  const json before = metrics::hints();
  checkpoint::save_all_states();

  metrics::reset();
  checkpoint::reset();
  CHECK(metrics::hints() == before);
  REQUIRE(metrics::batch_sizes());
  CHECK(metrics::batch_sizes()->limits.min_local_bsz == 8);
  CHECK_FALSE(metrics::batch_sizes()->limits.max_local_bsz);
  REQUIRE(metrics::goodput_function());
  fit();  // the same times
  CHECK(metrics::hints() == before);
}

TEST_CASE("loading an invalid metrics state fails and names the state") {
  const Fresh fresh;
  const Directory directory;
  struct Other : checkpoint::State {
    Other() : State("adaptdl-metrics") {}
    void save(checkpoint::Writer& writer) const override { writer.json("profile", {{{"nodes", "two"}}}); }
    void load(const checkpoint::Reader&) override {}
  };
  {
    Other other;
    checkpoint::save_all_states();
  }
  checkpoint::reset();
  CHECK_THROWS_WITH_AS(metrics::progress(), doctest::Contains("state 'adaptdl-metrics' in"),
                       checkpoint::CheckpointError);
}

TEST_CASE("the clock can be replaced and restored") {
  const Fresh fresh;
  const double before = metrics::now();
  CHECK(metrics::now() >= before);
  metrics::set_clock([] { return 42.0; });
  CHECK(metrics::now() == 42);
  metrics::set_clock({});
  CHECK(metrics::now() >= before);
  CHECK(metrics::now() != 42);
}

}  // namespace metrics_test
