#include "tune/sampler/importance.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"

namespace adaptdl::sched::tune::tune_importance_test {
namespace {

const Distribution kX = FloatRange{0, 1}, kRate = FloatRange{1e-4, 1, true}, kLayers = IntRange{1, 9, false, 2},
                   kOptimizer = Choice{{"sgd", "adam", "lamb"}};

// Returns numbers that fill [0, 1) evenly.
double fraction_of(int index, double step) { return std::fmod(index * step, 1.0); }

void add_parameter(Trial& trial, const std::string& name, const Distribution& distribution, nlohmann::json value) {
  trial.distributions[name] = distribution;
  trial.parameters[name] = std::move(value);
}

Trial trial_of(int number) {
  Trial trial{number, number, TrialState::kComplete, {}, {}, {}, {}, {}, {}, {}, {}};
  add_parameter(trial, "x", kX, fraction_of(number, 0.618));
  add_parameter(trial, "rate", kRate, std::pow(10, -4 * fraction_of(number, 0.414)));
  add_parameter(trial, "layers", kLayers, 1 + 2 * (number % 5));
  add_parameter(trial, "optimizer", kOptimizer, std::get<Choice>(kOptimizer).values[number % 3]);
  return trial;
}

// Returns a study whose trials have values that depend only on x.
Study study_of(int trials) {
  Study study{0, "s", {Direction::kMinimize}, {}, {}, {}};
  for (int number = 0; number < trials; ++number) {
    study.trials.push_back(trial_of(number));
    study.trials.back().values = {std::abs(study.trials.back().parameters["x"].get<double>() - 0.7)};
  }
  return study;
}

double fraction(const Importances& importances, const std::string& parameter) {
  for (const auto& [name, fraction] : importances.parameters)
    if (name == parameter) return fraction;
  return std::numeric_limits<double>::quiet_NaN();
}

TEST_CASE("the parameter that determines the results is the most important") {
  const Importances found = parameter_importances(study_of(100));
  CHECK(found.trials == 100);
  CHECK(found.best == 10);
  REQUIRE(found.parameters.size() == 4);
  CHECK(found.parameters.front().parameter == "x");
  CHECK(found.parameters.front().fraction > 0.8);
  double sum = 0, last = 1;
  for (const auto& [name, fraction] : found.parameters) {
    CHECK(fraction <= last);
    CHECK(fraction >= 0);
    sum += last = fraction;
  }
  CHECK(sum == doctest::Approx(1).epsilon(1e-14));
}

TEST_CASE("negating all values and reversing the direction leaves the importances unchanged") {
  Study study = study_of(60);
  const Importances low = parameter_importances(study);
  for (Trial& trial : study.trials) trial.values.front() *= -1;
  study.directions = {Direction::kMaximize};
  const Importances high = parameter_importances(study);
  for (const auto& [name, fraction] : low.parameters) CHECK(fraction == tune_importance_test::fraction(high, name));
}

TEST_CASE("trials that ended early rank below those that completed") {
  Study study = study_of(60);
  const Importances expected = parameter_importances(study);
  std::vector<double> values;
  for (const Trial& trial : study.trials) values.push_back(trial.values.front());
  std::ranges::sort(values);
  // The best two trials complete, and the others end at a step that depends on how good they are.
  for (Trial& trial : study.trials) {
    const double value = trial.values.front();
    if (value <= values[1]) continue;
    trial.state = TrialState::kPruned;
    trial.values.clear();
    trial.intermediate = {{value < 0.1 ? 4 : 1, value < 0.1 ? value : -value}};
  }
  const Importances found = parameter_importances(study);
  CHECK(found.trials == 60);
  CHECK(found.best == 6);
  for (const auto& [name, fraction] : expected.parameters)
    CHECK(fraction == tune_importance_test::fraction(found, name));
}

TEST_CASE("trials without a finite value are ignored") {
  Study study = study_of(40);
  const Importances expected = parameter_importances(study);
  for (int i = 0; i < 5; ++i) study.trials.push_back(trial_of(40 + i));
  study.trials[40].state = TrialState::kRunning;
  study.trials[41].state = TrialState::kFailed;
  study.trials[42].state = TrialState::kWaiting;
  study.trials[43].state = TrialState::kPruned;
  study.trials[44].values = {std::numeric_limits<double>::infinity()};
  const Importances found = parameter_importances(study);
  CHECK(found.trials == 40);
  for (const auto& [name, fraction] : expected.parameters)
    CHECK(fraction == tune_importance_test::fraction(found, name));
}

TEST_CASE("trials that tie with the last trial of the best tenth are also among the best") {
  Study study = study_of(20);
  for (Trial& trial : study.trials) trial.values = {trial.number < 5 ? 1.0 : 2.0};
  CHECK(parameter_importances(study).best == 5);
}

TEST_CASE("a conditional parameter's importance is measured among the trials that have it") {
  Study study = study_of(90);
  for (Trial& trial : study.trials) {
    if (trial.parameters["optimizer"] != "sgd") continue;
    const double momentum = fraction_of(trial.number, 0.732);
    add_parameter(trial, "momentum", kX, momentum);
    trial.values = {momentum - 1};
  }
  const Importances found = parameter_importances(study);
  CHECK(found.parameters.size() == 5);
  CHECK(fraction(found, "momentum") > fraction(found, "x"));
  CHECK(fraction(found, "momentum") > fraction(found, "layers"));
}

TEST_CASE("a parameter with a single value has no importance") {
  Study study = study_of(20);
  for (Trial& trial : study.trials) {
    add_parameter(trial, "batch", Choice{{64}}, 64);
    add_parameter(trial, "depth", IntRange{3, 3}, 3);
  }
  CHECK(fraction(parameter_importances(study), "batch") == 0);
  CHECK(fraction(parameter_importances(study), "depth") == 0);
}

TEST_CASE("a study with too few or indistinguishable trials is rejected") {
  CHECK_GOLDEN(::testing::error_of([&] { parameter_importances(study_of(9)); }));
  CHECK_NOTHROW(parameter_importances(study_of(10)));
  Study study = study_of(12);
  for (Trial& trial : study.trials) trial.values = {1};
  CHECK_GOLDEN(::testing::error_of([&] { parameter_importances(study); }));
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_importance_test
