#include "command/tune/search_view.h"

#include <doctest/doctest.h>

#include <limits>

namespace search_view_test {

using namespace adaptdl;
using namespace std::chrono_literals;
namespace tune = sched::tune;

namespace {

constexpr cli::SearchView::Time kStart{1h};

tune::Trial trial(int number, tune::TrialState state, std::optional<double> value, bool paused = false) {
  tune::Trial trial;
  trial.number = number;
  trial.state = state;
  trial.parameters = {{"lr", 0.5}};
  if (value) trial.intermediate[100] = *value;
  if (value && state == tune::TrialState::kComplete) trial.values = {*value};
  if (paused) trial.user_attributes[tune::kActivity] = tune::kPaused;
  return trial;
}

tune::Study study() {
  tune::Study study;
  study.name = "s";
  study.directions = {tune::Direction::kMinimize};
  study.trials = {trial(0, tune::TrialState::kRunning, 0.4, true),
                  trial(1, tune::TrialState::kRunning, {}),
                  trial(2, tune::TrialState::kComplete, 0.3),
                  trial(3, tune::TrialState::kFailed, std::numeric_limits<double>::quiet_NaN()),
                  trial(4, tune::TrialState::kRunning, 0.1),
                  trial(5, tune::TrialState::kRunning, 0.2, true),
                  trial(6, tune::TrialState::kWaiting, {})};
  return study;
}

std::vector<int> numbers(const cli::SearchSnapshot& snapshot) {
  std::vector<int> numbers;
  for (const auto& row : snapshot.rows) numbers.push_back(row.number);
  return numbers;
}

}  // namespace

TEST_CASE("running trials are listed first, then those with the best values") {
  cli::SearchView view("loss", 5, kStart, [](int) { return std::nullopt; });
  const auto snapshot = view.snapshot(study(), 10, kStart + 3s);
  CHECK(numbers(snapshot) == std::vector{1, 4, 5, 2, 0});
  CHECK(numbers(view.snapshot(study(), 3, kStart)) == std::vector{1, 4, 5});
  CHECK(numbers(view.snapshot(study(), 1, kStart)) == std::vector{1});
  CHECK(numbers(view.snapshot(study(), 0, kStart)).empty());
  CHECK(snapshot.trials == 7);
  CHECK(snapshot.all == 7);
  CHECK(snapshot.elapsed == 3s);
  REQUIRE(snapshot.best);
  CHECK(snapshot.best->number == 2);
  CHECK(snapshot.rows[0].state == "running");
  CHECK(snapshot.rows[2].state == "paused");
  CHECK(snapshot.rows[0].parameters == "lr=0.5");
  CHECK(snapshot.counts[0].trials == 2);
  CHECK(snapshot.counts[1].trials == 2);
}

TEST_CASE("before any trial completes, the best trial is the one with the best intermediate value") {
  cli::SearchView view("loss", 64, kStart, [](int) { return std::nullopt; });
  tune::Study given = study();
  given.trials[2].state = tune::TrialState::kFailed;
  given.trials[2].values.clear();
  const auto snapshot = view.snapshot(given, 10, kStart);
  REQUIRE(snapshot.best);
  CHECK(snapshot.best->number == 4);
  CHECK(snapshot.all == 64);
  given.trials.clear();
  CHECK_FALSE(view.snapshot(given, 10, kStart).best);
}

TEST_CASE("the statuses of running trials are read at most once per second") {
  std::vector<int> asked;
  cli::SearchView view("loss", 5, kStart, [&asked](int number) {
    asked.push_back(number);
    sched::RunStatus status;
    status.state = number == 1 ? "done" : "running";
    status.replicas = 3;
    status.progress = {{"goodput", 1200.0}, {"remaining_s", 30}};
    return std::optional(status);
  });
  const auto first = view.snapshot(study(), 10, kStart);
  CHECK(asked == std::vector{1, 4});
  view.snapshot(study(), 10, kStart + 900ms);
  CHECK(asked.size() == 2);
  view.snapshot(study(), 10, kStart + 1s);
  CHECK(asked.size() == 4);
  // The record of trial 1 says "done" while the trial is running, so it must be the record of an earlier run.
  CHECK_FALSE(first.rows[0].replicas);
  CHECK(first.rows[1].replicas == 3);
  CHECK(first.rows[1].goodput == 1200.0);
  CHECK(first.rows[1].left == 30s);
  CHECK_FALSE(first.rows[2].replicas);
}

}  // namespace search_view_test
