#include "tune/pruner/pruner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "golden.h"
#include "tune/pruner/asha.h"
#include "tune/pruner/rungs.h"

namespace adaptdl::sched::tune::tune_pruner_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Study make_study(Direction direction = Direction::kMaximize) {
  Study study;
  study.directions = {direction};
  return study;
}

// Adds a trial that reported these values at steps 1, 2, ….
Trial& add(Study& study, const std::vector<double>& values, TrialState state = TrialState::kRunning) {
  Trial& trial = study.trials.emplace_back();
  trial.number = static_cast<int>(study.trials.size()) - 1;
  trial.state = state;
  for (std::size_t i = 0; i < values.size(); ++i) trial.intermediate[static_cast<std::int64_t>(i) + 1] = values[i];
  return trial;
}

void pause(Trial& trial, int rung) {
  trial.user_attributes[kActivity] = kPaused;
  trial.user_attributes[kRung] = rung;
}

// Trains trials as a search does, `parallel` at a time, until nothing is left to do; their values are
// `curve`(number, step). Returns for how many steps each trial was trained.
std::vector<int> search(Study& study, const Pruner& pruner, int trials, int parallel, int steps, auto curve) {
  std::vector<int> trained(static_cast<std::size_t>(trials), 0);
  const auto running = [&] { return std::ranges::count_if(study.trials, is_running); };
  for (;;) {
    while (running() < parallel) {
      const bool created_all = static_cast<int>(study.trials.size()) == trials;
      if (const auto next = pruner.promote(study, created_all && running() == 0)) {
        Trial& trial = study.trials[static_cast<std::size_t>(next->trial)];
        REQUIRE(is_paused(trial));
        trial.user_attributes.erase(kActivity);
        trial.user_attributes[kRung] = next->rung;
      } else if (!created_all) {
        add(study, {});
      } else {
        break;
      }
    }
    if (running() == 0) return trained;
    for (Trial& trial : study.trials) {
      if (!is_running(trial)) continue;
      const int step = ++trained[static_cast<std::size_t>(trial.number)];
      trial.intermediate[step] = curve(trial.number, step);
      if (step == steps) {
        trial.state = TrialState::kComplete;
        continue;
      }
      const Judgement judgement = pruner.judge(study, trial);
      trial.user_attributes[kRung] = judgement.rung;
      if (judgement.verdict == Verdict::kPause) trial.user_attributes[kActivity] = kPaused;
      if (judgement.verdict == Verdict::kPrune) trial.state = TrialState::kPruned;
    }
  }
}

TEST_CASE("asha pauses a trial at a rung unless it is among the best there") {
  Study study = make_study();
  for (const double value : {0.5, 0.6, 0.4}) pause(add(study, {value}), 0);
  const auto pruner = make_pruner("asha");
  CHECK(pruner->judge(study, add(study, {0.55})).verdict == Verdict::kPause);
  const Judgement best = pruner->judge(study, add(study, {0.7}));
  CHECK(best.verdict == Verdict::kContinue);
  CHECK(best.rung == 1);
  CHECK_GOLDEN(best.reason);
}

TEST_CASE("the first trial at a rung is paused, even if its value is high") {
  Study study = make_study();
  CHECK(make_pruner("asha")->judge(study, add(study, {1.0})).verdict == Verdict::kPause);
}

TEST_CASE("a trial between two rungs continues") {
  Study study = make_study();
  Trial& trial = add(study, {0.1, 0.1});
  trial.user_attributes[kRung] = 1;
  const Judgement judgement = make_pruner("asha")->judge(study, trial);
  CHECK(judgement.verdict == Verdict::kContinue);
  CHECK(judgement.reason.empty());
}

TEST_CASE("asha promotes the best paused trial of the highest rung that has one") {
  Study study = make_study(Direction::kMinimize);
  for (const double value : {0.5, 0.3, 0.6, 0.7, 0.8, 0.2, 0.9, 1.0}) pause(add(study, {value}), 0);
  const auto next = make_pruner("asha")->promote(study, false);
  REQUIRE(next);
  CHECK(next->trial == 5);
  CHECK(next->rung == 1);
  study.trials[5].user_attributes[kActivity] = "running";
  study.trials[5].user_attributes[kRung] = 1;
  CHECK(make_pruner("asha")->promote(study, false)->trial == 1);
  study.trials[1].user_attributes[kActivity] = "running";
  CHECK_FALSE(make_pruner("asha")->promote(study, false));
}

TEST_CASE("early promotions use up the places of better trials, except that of the best") {
  Study study = make_study();
  for (const double value : {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}) pause(add(study, {value}), 0);
  for (const int promoted : {2, 3}) study.trials[static_cast<std::size_t>(promoted)].user_attributes[kRung] = 1;
  const auto pruner = make_pruner("asha");
  CHECK(pruner->promote(study, false)->trial == 7);
  study.trials[7].user_attributes[kRung] = 1;
  CHECK_FALSE(pruner->promote(study, false));
  CHECK(pruner->judge(study, add(study, {0.75})).verdict == Verdict::kPause);
  CHECK(pruner->judge(study, add(study, {0.9})).verdict == Verdict::kContinue);
  add(study, {0.85});
  const Trial& second = study.trials.back();
  CHECK(pruner->judge(study, second).verdict == Verdict::kPause);
  CHECK_GOLDEN(pruner->judge(study, second).reason);
  for (const int failed : {2, 3}) study.trials[static_cast<std::size_t>(failed)].state = TrialState::kFailed;
  CHECK(pruner->judge(study, second).verdict == Verdict::kContinue);
}

TEST_CASE("a trial that is still pausing does not block the promotion of others") {
  Study study = make_study(Direction::kMinimize);
  for (const double value : {0.5, 0.3, 0.6, 0.7, 0.8, 0.2, 0.9, 1.0}) pause(add(study, {value}), 0);
  const auto next = make_pruner("asha")->promote(study, false, [](int number) { return number == 5; });
  REQUIRE(next);
  CHECK(next->trial == 1);
}

TEST_CASE("NaN values are never promoted") {
  Study study = make_study();
  for (int i = 0; i < 8; ++i) pause(add(study, {kNaN}), 0);
  CHECK_FALSE(make_pruner("asha")->promote(study, false));
  CHECK_FALSE(make_pruner("asha")->promote(study, true));
  pause(add(study, {-1e9}), 0);
  CHECK(make_pruner("asha")->promote(study, false)->trial == 8);
}

TEST_CASE("one trial is trained to the end even if there are too few trials for a promotion") {
  for (const char* const name : {"asha", "hyperband"}) {
    Study study = make_study();
    const auto trained = search(study, *make_pruner(name), 3, 2, 50, [](int number, int) { return number; });
    CHECK(std::ranges::count(trained, 50) == 1);
    CHECK(std::ranges::count(study.trials, TrialState::kComplete, &Trial::state) == 1);
  }
}

TEST_CASE("asha trains the best trial to the end, and most trials for one step only") {
  Study study = make_study();
  const auto curve = [](int number, int step) { return 1 - 1.0 / step - 0.01 * ((number * 37) % 64); };
  const auto trained = search(study, *make_pruner("asha"), 64, 4, 64, curve);
  CHECK(study.trials[0].state == TrialState::kComplete);
  CHECK(std::ranges::count(trained, 1) >= 40);
  CHECK(std::ranges::count_if(trained, [](int steps) { return steps > 16; }) <= 3);
}

TEST_CASE("asha trains few trials for long, even if later ones are better than earlier ones") {
  Study study = make_study();
  const auto curve = [](int number, int) { return 0.5 * number + (number * 37) % 64; };
  const auto trained = search(study, *make_pruner("asha"), 64, 4, 64, curve);
  const auto longer_than = [&trained](int limit) {
    return std::ranges::count_if(trained, [limit](int steps) { return steps > limit; });
  };
  CHECK(longer_than(1) <= 17);
  CHECK(longer_than(4) <= 7);
  CHECK(longer_than(16) <= 4);
  const auto best =
      std::ranges::max_element(study.trials, {}, [&](const Trial& each) { return curve(each.number, 1); });
  CHECK(best->state == TrialState::kComplete);
}

TEST_CASE("hyperband compares some of the trials only at later rungs") {
  CHECK(assign_brackets(0, 3, 4).empty());
  const auto brackets = assign_brackets(100, 3, 4);
  CHECK(std::ranges::count(brackets, 0) == 64);
  CHECK(std::ranges::count(brackets, 1) == 24);
  CHECK(std::ranges::count(brackets, 2) == 12);
  const auto fewer = assign_brackets(50, 3, 4);
  CHECK(std::equal(fewer.begin(), fewer.end(), brackets.begin()));
  Study study = make_study();
  const auto trained = search(study, *make_pruner("hyperband"), 50, 4, 64, [](int number, int) { return -number; });
  for (std::size_t i = 0; i < trained.size(); ++i) CHECK(trained[i] >= std::pow(4, brackets[i]));
}

TEST_CASE("rungs keep their steps once the step of the first rung is stored") {
  Study study = make_study();
  add(study, {});
  add(study, {}).intermediate[100] = 0.5;
  CHECK(Rungs(study, 4, {}).step(1) == 400);
  study.user_attributes[kFirstRung] = 100;
  study.trials.front().intermediate[10] = 0.5;
  CHECK(Rungs(study, 4, {}).step(1) == 400);
  CHECK(Rungs(study, 4, 7.0).step(1) == 28);
}

TEST_CASE("a trial reaches a rung with a report at 95% of the rung's step") {
  Study study = make_study();
  Trial& trial = add(study, {});
  trial.intermediate = {{94, 0.0}, {96, 0.1}, {380, 0.2}, {1000, 0.3}};
  const Rungs rungs(study, 4, 100.0);
  CHECK(rungs.value(trial, 0) == 0.1);
  CHECK(rungs.value(trial, 1) == 0.2);
  CHECK_FALSE(rungs.value(trial, 2));
  CHECK(rungs.highest(trial) == 1);
}

TEST_CASE("median prunes a trial that is worse than half of the completed ones at its step") {
  Study study = make_study();
  for (const double value : {0.1, 0.2, 0.3, 0.4, 0.5}) add(study, {value, value + 0.1}, TrialState::kComplete);
  const auto pruner = make_pruner("median");
  CHECK(pruner->judge(study, add(study, {0.25})).verdict == Verdict::kPrune);
  CHECK(pruner->judge(study, add(study, {0.3})).verdict == Verdict::kContinue);
  CHECK(pruner->judge(study, add(study, {0.45, 0.2})).verdict == Verdict::kContinue);
  CHECK(pruner->judge(study, add(study, {kNaN})).verdict == Verdict::kPrune);
  study.trials.erase(study.trials.begin());
  CHECK(pruner->judge(study, add(study, {0.25})).verdict == Verdict::kContinue);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_pruner_test
