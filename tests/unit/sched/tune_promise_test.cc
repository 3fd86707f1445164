#include "tune/pruner/promise.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace adaptdl::sched::tune::tune_promise_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Values = std::map<std::int64_t, double>;

struct Scene {
  explicit Scene(Direction direction = Direction::kMaximize) { study.directions = {direction}; }

  // Returns the number of the trial.
  int add(TrialState state, const Values& values) {
    Trial trial;
    trial.number = static_cast<int>(study.trials.size());
    trial.state = state;
    trial.intermediate = values;
    if (state == TrialState::kComplete) trial.values = {values.rbegin()->second};
    study.trials.push_back(trial);
    return trial.number;
  }
  int run(const Values& values) { return add(TrialState::kRunning, values); }

  Study study;
};

double sum(const std::map<int, double>& weights) {
  double sum = 0;
  for (const auto& [number, weight] : weights) sum += weight;
  return sum;
}

TEST_CASE("the chance that one of two normal forecasts is best follows from their difference") {
  const auto chances = chances_of_best({{1, 3}, {0, 4}}, {});
  const double expected = 0.5 * std::erfc(-0.2 / std::sqrt(2.0));
  CHECK(std::abs(chances[0] - expected) < 0.005);
  CHECK(std::abs(chances[0] + chances[1] - 1) < 1e-12);
}

TEST_CASE("forecasts without deviation have a chance of 0 or 1, or equal chances if they tie") {
  CHECK(chances_of_best({{2, 0}, {1, 0}}, {}) == std::vector{1.0, 0.0});
  CHECK(chances_of_best({{1, 0}, {1, 0}}, {}) == std::vector{0.5, 0.5});
  CHECK(chances_of_best({{-5, 1}}, {}) == std::vector{1.0});
  CHECK(chances_of_best({}, {}).empty());
}

TEST_CASE("against a better completed trial, the less certain forecast has the higher chance") {
  const std::vector<Forecast> forecasts{{1, 0.1}, {0.9, 0.5}};
  CHECK(chances_of_best(forecasts, {})[0] > 0.5);
  CHECK(chances_of_best(forecasts, 1.5)[1] > 0.9);
  // A completed trial that is out of reach is ignored.
  CHECK(chances_of_best(forecasts, 100) == chances_of_best(forecasts, {}));
}

TEST_CASE("a better value at the same step gets a higher weight, and the weights average 1") {
  for (const auto direction : {Direction::kMaximize, Direction::kMinimize}) {
    Scene scene(direction);
    const int low = scene.run({{10, 0.1}}), middle = scene.run({{10, 0.5}}), high = scene.run({{10, 0.6}});
    const auto weights = promise_weights(scene.study, {low, middle, high});
    const bool maximize = direction == Direction::kMaximize;
    CHECK((weights.at(high) > weights.at(middle)) == maximize);
    CHECK((weights.at(middle) > weights.at(low)) == maximize);
    CHECK(std::abs(sum(weights) - 3) < 1e-9);
    for (const auto& [number, weight] : weights) CHECK(weight >= kMinPromise);
  }
}

TEST_CASE("a single trial and a trial without reports have the weight 1") {
  Scene scene;
  const int alone = scene.run({{10, 0.5}});
  CHECK(std::abs(promise_weights(scene.study, {alone}).at(alone) - 1) < 1e-12);
  const int fresh = scene.run({}), better = scene.run({{10, 0.9}});
  const auto weights = promise_weights(scene.study, {alone, fresh, better});
  CHECK(weights.at(fresh) == 1);
  CHECK(std::abs(sum(weights) - 3) < 1e-9);
  CHECK(promise_weights(scene.study, {fresh}).at(fresh) == 1);
  CHECK(promise_weights(scene.study, {}).empty());
}

TEST_CASE("a trial at an earlier step is judged by the gains of others since that step") {
  Scene scene;
  // All trials gain about 0.4 between steps 10 and 40.
  for (const double base : {0.1, 0.2, 0.3, 0.4})
    scene.add(TrialState::kComplete, {{10, base}, {40, base + 0.4 + base / 50}});
  const int early = scene.run({{10, 0.5}}), late = scene.run({{10, 0.3}, {39, 0.7}});
  const auto weights = promise_weights(scene.study, {early, late});
  CHECK(weights.at(early) > 1.5);
  CHECK(weights.at(late) < 0.5);
}

TEST_CASE("paused trials are considered while few trials have completed") {
  Scene scene;
  for (const double base : {0.1, 0.2, 0.3, 0.4})
    scene.add(TrialState::kRunning, {{10, base}, {40, base + 0.4 + base / 50}});
  const int early = scene.run({{10, 0.5}}), late = scene.run({{10, 0.3}, {39, 0.7}});
  CHECK(promise_weights(scene.study, {early, late}).at(early) > 1.5);
  // Failed trials are ignored.
  for (Trial& trial : scene.study.trials)
    if (trial.number < 3) trial.state = TrialState::kFailed;
  CHECK(promise_weights(scene.study, {early, late}).at(late) > 1);
}

TEST_CASE("non-finite values get the minimum weight and leave the other weights finite") {
  Scene scene;
  const int good = scene.run({{10, 0.5}}), lost = scene.run({{10, kNaN}}), other = scene.run({{10, 0.4}});
  auto weights = promise_weights(scene.study, {good, lost, other});
  CHECK(weights.at(lost) == kMinPromise);
  CHECK(weights.at(good) > weights.at(other));
  CHECK(std::abs(sum(weights) - 3) < 1e-9);
  CHECK(promise_weights(scene.study, {lost}).at(lost) == 1);
  for (int i = 0; i < 4; ++i) scene.add(TrialState::kPruned, {{10, 0.1}, {20, i % 2 != 0 ? kInfinity : kNaN}});
  scene.add(TrialState::kComplete, {{10, -kInfinity}, {20, kInfinity}});
  CHECK(promise_weights(scene.study, {good, lost, other}) == weights);
  const int huge = scene.run({{10, 1.7e308}}), negative = scene.run({{10, -1.7e308}});
  weights = promise_weights(scene.study, {good, huge, negative});
  for (const auto& [number, weight] : weights) CHECK(std::isfinite(weight));
  CHECK(std::abs(sum(weights) - 3) < 1e-9);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_promise_test
