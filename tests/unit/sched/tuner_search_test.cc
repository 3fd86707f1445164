// Tests the course of a search: which trials it runs and for how long, where it continues after a stop, and its events.
#include "tuner/search.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "golden.h"
#include "tune/study/space_text.h"
#include "tuner/study_view.h"
#include "tuner_search_scene.h"

namespace adaptdl::sched::tune::tuner_search_test {

using namespace testing;

namespace {

using Kind = SearchEvent::Kind;

bool is_end(Kind kind) { return kind == Kind::kComplete || kind == Kind::kPruned || kind == Kind::kFailed; }

std::int64_t count(const std::vector<SearchEvent>& events, int trial, Kind kind) {
  return std::ranges::count_if(events, [&](const auto& each) { return each.trial == trial && each.kind == kind; });
}

// Checks that the events of each trial of a finished study are complete, from its start to its end.
void check_events(const Scene& scene) {
  for (const Trial& trial : scene.study().trials) {
    CAPTURE(trial.number);
    std::vector<SearchEvent> own;
    std::ranges::copy_if(scene.events, std::back_inserter(own),
                         [&trial](const SearchEvent& each) { return each.trial == trial.number; });
    REQUIRE_FALSE(own.empty());
    CHECK(own.front().kind == Kind::kStarted);
    CHECK(own.front().parameters == trial.parameters);
    CHECK(count(own, trial.number, Kind::kStarted) == 1);
    CHECK(is_end(own.back().kind));
    CHECK(std::ranges::count_if(own, [](const auto& each) { return is_end(each.kind); }) == 1);
    CHECK(count(own, trial.number, Kind::kResult) == static_cast<std::int64_t>(trial.intermediate.size()));
    CHECK(own.back().value == last_value(trial));
    CHECK(own.back().step == last_step(trial));
  }
}

TEST_CASE("a search runs all requested trials, but only a few to the end, including the best") {
  Scene scene;
  FakeRunner runner(scene.kept, 64, quality);
  CHECK(scene.search(runner));
  CHECK(scene.study().trials.size() == 24);
  CHECK(scene.count(TrialState::kComplete) >= 1);
  CHECK(scene.count(TrialState::kComplete) <= 3);
  CHECK(scene.count(TrialState::kRunning) == 0);
  const Trial* const best = best_trial(scene.study());
  REQUIRE(best != nullptr);
  for (const Trial& trial : scene.study().trials) CHECK(quality(trial.parameters, 64) <= best->values.front());
  // Trials that leave may overlap with those that replace them.
  CHECK(runner.most_active <= 8);
}

TEST_CASE("only completed trials keep their checkpoints") {
  Scene scene;
  FakeRunner runner(scene.kept, 64, quality);
  CHECK(scene.search(runner));
  CHECK(scene.kept.checkpoint.size() <= static_cast<std::size_t>(scene.count(TrialState::kComplete)));
}

TEST_CASE("a trial is released after it and its run have ended, not while it is paused") {
  for (const char* const pruner : {"asha", "median"}) {
    Scene scene(pruner);
    FakeRunner runner(scene.kept, 64, quality);
    runner.slow_to_leave = 20;
    Search search = scene.make_search(runner);
    while (search.advance(Time()))
      for (const Trial& trial : scene.study().trials)
        CHECK(runner.released.contains(trial.number) == (is_finished(trial.state) && !runner.is_active(trial.number)));
    CHECK_FALSE(runner.released.empty());
  }
}

TEST_CASE("the last running trial passes a rung without pausing") {
  Scene scene("asha", 1, 1);
  FakeRunner runner(scene.kept, 64, quality);
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 1);
  CHECK(count(scene.events, 0, Kind::kAdvanced) == 1);
  CHECK(count(scene.events, 0, Kind::kPausing) == 0);
  CHECK(count(scene.events, 0, Kind::kContinued) == 0);
}

TEST_CASE("without a pruner, every trial is trained to the end") {
  Scene scene("none", 3, 7);
  FakeRunner runner(scene.kept, 5, quality);
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 7);
}

TEST_CASE("a search that is killed at any time resumes without losing, repeating or retraining trials" *
          doctest::test_suite("slow")) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    Scene scene;
    for (;;) {
      // The runs of the killed search save their checkpoints.
      FakeRunner runner(scene.kept, 64, quality);
      const int rounds = 1 + static_cast<int>(random() % 40);
      const bool finished = scene.search(runner, rounds);
      if (finished) break;
      for (const Trial& trial : scene.study().trials)
        if (runner.is_active(trial.number)) runner.stop(trial.number);
      runner.poll();
    }
    CHECK(scene.study().trials.size() == 24);
    CHECK(scene.count(TrialState::kComplete) >= 1);
    CHECK(scene.count(TrialState::kFailed) == 0);
    check_events(scene);
    for (const auto& [number, steps] : scene.kept.steps_trained) CHECK(steps <= 64);
    for (const Trial& trial : scene.study().trials) CHECK(trial.parameters.contains("lr"));
  }
}

TEST_CASE("all trials save a checkpoint on stop(), and the next search continues them") {
  Scene scene("none", 4, 6);
  {
    FakeRunner runner(scene.kept, 10, quality);
    Search search = scene.make_search(runner);
    for (int i = 0; i < 5; ++i) CHECK(search.advance(Time()));
    search.stop();
    while (search.advance(Time())) {
    }
    CHECK_FALSE(search.finished());
  }
  CHECK(scene.count(TrialState::kRunning) == 4);
  FakeRunner runner(scene.kept, 10, quality);
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 6);
  for (const auto& [number, steps] : scene.kept.steps_trained) CHECK(steps == 10);
}

TEST_CASE("at its deadline, a search saves checkpoints and stops") {
  Scene scene("none");
  scene.plan.deadline = Time() + std::chrono::seconds(1);
  FakeRunner runner(scene.kept, 100, quality);
  Search search = scene.make_search(runner);
  // If starting a trial is slow, one call may start fewer trials than it could.
  while (runner.most_active < 4) REQUIRE(search.advance(Time()));
  CHECK(search.advance(Time() + std::chrono::seconds(1)));
  CHECK_FALSE(search.advance(Time() + std::chrono::seconds(1)));
  CHECK_FALSE(search.finished());
  CHECK(scene.kept.checkpoint.size() == 4);
}

TEST_CASE("running trials of an Optuna worker are left alone") {
  Scene scene("none", 1, 3);
  const int id = scene.journal.create_trial(scene.study().id, TrialState::kRunning);
  FakeRunner runner(scene.kept, 2, quality);
  CHECK(scene.search(runner));
  CHECK(scene.journal.trial(id)->state == TrialState::kRunning);
  CHECK_FALSE(scene.kept.steps_trained.contains(0));
  CHECK(scene.count(TrialState::kComplete) == 2);
}

TEST_CASE("the number of stopping trials is limited to the number of parallel trials") {
  Scene scene("asha", 3, 20);
  FakeRunner runner(scene.kept, 64, quality);
  runner.slow_to_leave = 200;
  CHECK(scene.search(runner));
  CHECK(runner.most_active == 6);
}

TEST_CASE("waiting trials in the storage run with their given parameters") {
  Scene scene("none", 1, 2);
  scene.journal.create_trial(scene.study().id, TrialState::kWaiting, {{"fixed_params", {{"lr", 0.01}, {"x", 1}}}});
  FakeRunner runner(scene.kept, 2, quality);
  CHECK(scene.search(runner));
  CHECK(scene.study().trials.size() == 2);
  CHECK(scene.study().trials[0].parameters == Values{{"lr", 0.01}});
}

// Stores the number of samples with the study and, with each trial, the number of samples before it.
class CountingSampler final : public Sampler {
 public:
  std::optional<Values> sample(const Space&, const Study& study, int, const Values& given) override {
    const auto before = study.system_attributes.find("count");
    count_ = before == study.system_attributes.end() ? 0 : before->second.get<int>() + 1;
    Values values = given;
    values.try_emplace("lr", 0.01);
    return values;
  }
  SamplerAttributes attributes() const override { return {{{"place", count_}}, {{"count", count_}}}; }

 private:
  int count_ = 0;
};

TEST_CASE("a sampler's attributes are stored with the study and its trials") {
  Scene scene("none", 2, 5);
  scene.sampler = std::make_unique<CountingSampler>();
  scene.journal.create_trial(scene.study().id, TrialState::kWaiting, {{"fixed_params", {{"lr", 0.1}}}});
  FakeRunner runner(scene.kept, 2, quality);
  CHECK(scene.search(runner));
  const Journal again(scene.directory.path() / "journal.log");
  const Study& study = *again.find("s");
  REQUIRE(study.trials.size() == 5);
  for (const Trial& trial : study.trials) CHECK(trial.system_attributes.at("place") == trial.number);
  CHECK(study.system_attributes.at("count") == 4);
}

TEST_CASE("an exhausted grid ends the search") {
  Scene scene("none", 2, 100);
  scene.plan.space = {{{"lr", Choice{{0.1, 0.01}}, {}}, {"b", IntRange{1, 3}, {}}}, {}};
  scene.sampler = make_sampler("grid", 3);
  FakeRunner runner(scene.kept, 2, quality);
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 6);
}

TEST_CASE("each trial has events for its start, results, pauses, continuations and end") {
  Scene scene("asha", 4, 64);
  FakeRunner runner(scene.kept, 64, quality);
  CHECK(scene.search(runner));
  check_events(scene);
  std::set<int> paused;
  for (const SearchEvent& event : scene.events) {
    CAPTURE(event.trial);
    if (event.kind == Kind::kPausing) CHECK(paused.insert(event.trial).second);
    if (event.kind == Kind::kContinued) CHECK(paused.erase(event.trial) == 1);
    if (event.kind == Kind::kResult || event.kind == Kind::kAdvanced) CHECK_FALSE(paused.contains(event.trial));
    if (event.kind == Kind::kPausing || event.kind == Kind::kAdvanced)
      CHECK(event.reason.find("place ") < event.reason.size());
  }
  CHECK(std::ranges::any_of(scene.events, [](const auto& each) { return each.kind == Kind::kContinued; }));
}

TEST_CASE("if another process ends a trial of the search, the trial has an event for its end") {
  Scene scene("none", 2, 4);
  Journal other(scene.directory.path() / "journal.log");
  const auto end = [&other](int number, TrialState state, const char* reason) {
    other.refresh();
    const int id = other.find("s")->trials[static_cast<std::size_t>(number)].id;
    if (reason != nullptr) other.set_trial_attribute(id, kReason, reason);
    other.finish(id, state, state == TrialState::kComplete ? std::optional(0.5) : std::nullopt);
  };
  // Trial 0 was stopped before the search, and trial 1 belongs to a worker of Optuna.
  other.create_trial(other.find("s")->id, TrialState::kWaiting);
  end(0, TrialState::kPruned, "stopped by `adaptdl tune stop`");
  other.create_trial(other.find("s")->id, TrialState::kRunning);
  scene.journal.refresh();
  FakeRunner runner(scene.kept, 20, quality);
  Search search = scene.make_search(runner);
  for (int i = 0; i < 3; ++i) search.advance(Time());
  end(1, TrialState::kComplete, nullptr);
  end(2, TrialState::kPruned, "stopped by `adaptdl tune stop`");
  while (search.advance(Time())) {
  }
  for (const int number : {0, 1})
    CHECK(std::ranges::find(scene.events, number, &SearchEvent::trial) == scene.events.end());
  CHECK(count(scene.events, 2, Kind::kPruned) == 1);
  CHECK(count(scene.events, 3, Kind::kComplete) == 1);
  const auto pruned = std::ranges::find(scene.events, Kind::kPruned, &SearchEvent::kind);
  CHECK(to_text(*pruned, "accuracy") == "trial 2: pruned, stopped by `adaptdl tune stop`");
  CHECK(pruned->value == quality(pruned->parameters, static_cast<int>(*pruned->step)));
}

TEST_CASE("a trial that was stopped before it started has an event") {
  Scene scene("none", 1, 2);
  Journal other(scene.directory.path() / "journal.log");
  FakeRunner runner(scene.kept, 3, quality);
  Search search = scene.make_search(runner);
  const int id = other.create_trial(scene.study().id, TrialState::kWaiting);
  other.set_trial_attribute(id, kReason, "stopped by `adaptdl tune stop`");
  other.finish(id, TrialState::kPruned, {});
  while (search.advance(Time())) {
  }
  CHECK(count(scene.events, 0, Kind::kPruned) == 1);
  CHECK(count(scene.events, 0, Kind::kStarted) == 0);
  CHECK(count(scene.events, 1, Kind::kComplete) == 1);
}

TEST_CASE("a search that stops and a trial that continues report the reason") {
  Scene scene("none", 1, 1);
  scene.plan.deadline = Time();
  FakeRunner runner(scene.kept, 5, quality);
  {
    Search search = scene.make_search(runner);
    CHECK_FALSE(search.advance(Time()));
    CHECK_GOLDEN(search.stop_reason());
    search.stop("interrupted by SIGINT");
    CHECK_GOLDEN(search.stop_reason());
  }
  REQUIRE(scene.events.size() == 1);
  CHECK(to_text(scene.events[0], "accuracy") == "time limit reached: stopping");
  scene.plan.deadline.reset();
  runner.ends[0] = {TrialEnd::How::kKilled, "`adaptdl run` was killed by SIGKILL"};
  CHECK(scene.search(runner));
  std::vector<std::string> texts;
  for (const SearchEvent& event : scene.events)
    if (event.kind != Kind::kResult) texts.push_back(to_text(event, "accuracy"));
  CHECK(texts == std::vector<std::string>{
                     "time limit reached: stopping", "trial 0: " + to_text(scene.study().trials[0].parameters),
                     "trial 0: continues, `adaptdl run` was killed by SIGKILL",
                     fmt::format("trial 0: complete, accuracy {:.6g}", scene.study().trials[0].values.front())});
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_search_test
