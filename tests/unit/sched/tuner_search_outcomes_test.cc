// Tests how a search handles the ends of its trials and the values that they report: failures, killed processes, and
// metrics that are missing or NaN.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "tuner/search.h"
#include "tuner/study_view.h"
#include "tuner_search_scene.h"

namespace adaptdl::sched::tune::tuner_search_outcomes_test {

using namespace testing;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("a failed trial records the reason, and the search continues") {
  Scene scene("none", 2, 8);
  FakeRunner runner(scene.kept, 5, quality);
  runner.failures[3] = "exit code 3";
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 7);
  CHECK(scene.study().trials[3].state == TrialState::kFailed);
  CHECK(scene.study().trials[3].user_attributes.at(kReason) == "exit code 3");
}

TEST_CASE("a search gives up when its first trials all fail") {
  Scene scene;
  FakeRunner runner(scene.kept, 5, quality);
  for (int i = 0; i < 24; ++i) runner.failures[i] = "no such file";
  std::string what;
  try {
    scene.search(runner);
  } catch (const Error& error) {
    what = error.what();
  }
  CHECK(what.starts_with("the first "));
  CHECK(what.ends_with(" trials failed without a result; the last one: no such file"));
  CHECK(scene.study().trials.size() < 24);
}

TEST_CASE("a search does not give up while a running trial may still report") {
  Scene scene("none", 2, 12);
  FakeRunner runner(scene.kept, 30, quality);
  for (int i = 1; i < 9; ++i) runner.failures[i] = "exit code 1";
  runner.reports = false;
  Search search = scene.make_search(runner);
  for (int i = 0; i < 20; ++i) CHECK(search.advance(Time()));
  CHECK(scene.count(TrialState::kFailed) == 5);
  runner.reports = true;
  while (search.advance(Time())) {
  }
  CHECK(search.finished());
  CHECK(scene.study().trials.size() == 12);
  CHECK(scene.count(TrialState::kComplete) == 4);
}

TEST_CASE("a trial whose process is killed continues from its checkpoint, at most three times") {
  Scene scene("none", 1, 1);
  FakeRunner runner(scene.kept, 5, quality);
  runner.ends[0] = {TrialEnd::How::kKilled, "killed"};
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 1);
  CHECK(scene.study().trials[0].user_attributes.at(kRestarts) == 1);
  Scene other("none", 1, 1);
  FakeRunner killed(other.kept, 5, quality);
  killed.ends[0] = {TrialEnd::How::kKilled, "killed"};
  killed.repeats = {0};
  CHECK(other.search(killed));
  CHECK(other.count(TrialState::kFailed) == 1);
  CHECK(other.study().trials[0].user_attributes.at(kRestarts) == 3);
}

TEST_CASE("a program that cannot be started ends the search, not the trial") {
  Scene scene("none", 2, 4);
  FakeRunner runner(scene.kept, 5, quality);
  runner.ends[1] = {TrialEnd::How::kNotStarted, "no such program"};
  std::string what;
  try {
    scene.search(runner);
  } catch (const Error& error) {
    what = error.what();
  }
  CHECK(what == "cannot start trial 1: no such program");
  CHECK(scene.count(TrialState::kFailed) == 0);
  FakeRunner mended(scene.kept, 5, quality);
  CHECK(scene.search(mended));
  CHECK(scene.count(TrialState::kComplete) == 4);
}

TEST_CASE("failed and externally stopped trials keep their checkpoints until the study ends") {
  Scene scene("none", 1, 3);
  FakeRunner runner(scene.kept, 20, quality);
  scene.kept.checkpoint = {{0, 2}, {1, 2}};
  runner.ends = {{0, {TrialEnd::How::kFailed, "exit code 1"}}, {1, {TrialEnd::How::kStopped, ""}}};
  Search search = scene.make_search(runner);
  for (int i = 0; i < 10; ++i) CHECK(search.advance(Time()));
  CHECK(scene.study().trials[0].state == TrialState::kFailed);
  CHECK(scene.study().trials[1].state == TrialState::kPruned);
  CHECK(scene.kept.checkpoint.size() == 2);
  while (search.advance(Time())) {
  }
  CHECK(scene.kept.checkpoint.empty());
}

TEST_CASE("a trial's value is the one reported last, even after a restart from an older step") {
  Scene scene("none", 1, 1);
  {
    FakeRunner runner(scene.kept, 10, quality);
    Search search = scene.make_search(runner);
    for (int i = 0; i < 9; ++i) search.advance(Time());
  }
  // The trial is trained from the beginning, up to a lower step.
  scene.kept.checkpoint.clear();
  FakeRunner runner(scene.kept, 3, [](const Values&, int step) { return step / 100.0; });
  CHECK(scene.search(runner));
  const Trial& trial = scene.study().trials[0];
  CHECK(trial.values == std::vector{0.03});
  CHECK(last_value(trial) == 0.03);
  CHECK(trial.intermediate.rbegin()->first > 3);
  CHECK(trial.user_attributes.at(kResults) == scene.kept.results[0].size());
}

TEST_CASE("a NaN value replaces an earlier value at the same step") {
  Scene scene("none", 1, 1);
  FakeRunner runner(scene.kept, 2, [](const Values&, int step) { return step == 2 ? kNaN : 0.5; });
  scene.kept.results[0] = {{0.5, 2, {}}};
  CHECK(scene.search(runner));
  CHECK(std::isnan(scene.study().trials[0].intermediate.at(2)));
  CHECK(scene.count(TrialState::kFailed) == 1);
}

TEST_CASE("results without a step are numbered, and not counted again by a later search") {
  Scene scene("none", 1, 1);
  for (const int rounds : {4, 3, 100}) {
    FakeRunner runner(scene.kept, 8, quality);
    runner.numbers = false;
    scene.search(runner, rounds);
    if (runner.is_active(0)) {
      runner.stop(0);
      runner.poll();
    }
  }
  const Trial& trial = scene.study().trials[0];
  CHECK(trial.state == TrialState::kComplete);
  CHECK(trial.intermediate.size() == 8);
  CHECK(trial.intermediate.rbegin()->first == 8);
}

TEST_CASE("a trial fails if its metric is never reported or is NaN at the end") {
  Scene scene("none", 1, 1);
  FakeRunner silent(scene.kept, 3, quality);
  silent.reports = false;
  CHECK(scene.search(silent));
  CHECK(scene.study().trials[0].user_attributes.at(kReason) == "metric 'accuracy' was never reported");
  Scene other("asha", 1, 3);
  FakeRunner diverging(other.kept, 3, [](const Values&, int) { return kNaN; });
  CHECK(other.search(diverging));
  CHECK(other.count(TrialState::kComplete) == 0);
  CHECK(best_trial(other.study()) == nullptr);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_search_outcomes_test
