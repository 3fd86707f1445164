// Tests how a search shares devices among its trials, and accounts for the time that they were held.
#include <doctest/doctest.h>

#include <random>

#include "golden.h"
#include "tuner/device_ledger.h"
#include "tuner_search_scene.h"

namespace adaptdl::sched::tune::tuner_devices_test {

using namespace testing;

namespace {

TEST_CASE("the device-seconds of each run are counted once, even if the search is killed repeatedly" *
          doctest::test_suite("slow")) {
  std::mt19937 random(11);
  for (int round = 0; round < 10; ++round) {
    // If the median rule ends a trial, the trial's run continues for a while.
    Scene scene(round % 2 == 0 ? "asha" : "median");
    for (bool finished = false; !finished;) {
      FakeRunner runner(scene.kept, 64, quality);
      runner.seconds_per_step = 3;
      runner.slow_to_leave = static_cast<int>(random() % 10);
      finished = scene.search(runner, 1 + static_cast<int>(random() % 80));
      for (const Trial& trial : scene.study().trials)
        if (runner.is_active(trial.number)) runner.stop(trial.number);
      runner.slow_to_leave = 0;
      if (!finished) runner.poll();
    }
    CHECK(scene.kept.device_seconds > 24 * 3);
    CHECK(device_seconds(scene.study()) == scene.kept.device_seconds);
  }
}

TEST_CASE("device-seconds are counted even if another process ends the trial at the same moment") {
  Scene scene("none", 1, 1);
  Journal other(scene.directory.path() / "journal.log");
  FakeRunner runner(scene.kept, 3, [&](const Values& values, int step) {
    // The trial ends between the search's last refresh of the storage and its next write.
    if (step == 3) other.finish(0, TrialState::kPruned, 0.5);
    return quality(values, step);
  });
  runner.seconds_per_step = 3;
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kPruned) == 1);
  CHECK(scene.kept.device_seconds == 9);
  CHECK(device_seconds(scene.study()) == 9);
}

TEST_CASE("a search saves checkpoints and stops when its device-hours are used up, and continues when it gets more") {
  Scene scene("none", 2, 6);
  scene.plan.max_device_seconds = 45;
  {
    FakeRunner runner(scene.kept, 10, quality);
    runner.seconds_per_step = 1.5;
    CHECK_FALSE(scene.search(runner));
    CHECK(scene.kept.device_seconds >= 45);
    CHECK(scene.kept.device_seconds <= 45 + 2 * 2 * 1.5);
    const auto stop = std::ranges::find(scene.events, SearchEvent::Kind::kStopping, &SearchEvent::kind);
    REQUIRE(stop != scene.events.end());
    CHECK_GOLDEN(stop->reason);
  }
  CHECK(scene.count(TrialState::kComplete) == 2);
  CHECK(scene.kept.checkpoint.size() == 2);
  {
    FakeRunner runner(scene.kept, 10, quality);
    Search search = scene.make_search(runner);
    CHECK_FALSE(search.advance(Time()));
    CHECK_FALSE(search.finished());
    CHECK(search.used_up());
    CHECK_FALSE(search.started());
    CHECK(search.device_seconds() == scene.kept.device_seconds);
  }
  scene.plan.max_device_seconds = 1000;
  FakeRunner runner(scene.kept, 10, quality);
  runner.seconds_per_step = 1.5;
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 6);
  for (const auto& [number, steps] : scene.kept.steps_trained) CHECK(steps == 10);
  CHECK(device_seconds(scene.study()) == scene.kept.device_seconds);
}

TEST_CASE("a study is done if its last trial uses up the device-hours") {
  for (const char* const pruner : {"none", "asha", "median"}) {
    Scene scene(pruner, 1, 3);
    FakeRunner measured(scene.kept, 16, quality);
    measured.seconds_per_step = 1;
    CHECK(scene.search(measured));
    Scene limited(pruner, 1, 3);
    limited.plan.max_device_seconds = scene.kept.device_seconds;
    FakeRunner runner(limited.kept, 16, quality);
    runner.seconds_per_step = 1;
    CHECK(limited.search(runner));
    CHECK(limited.count(TrialState::kRunning) == 0);
    FakeRunner again(limited.kept, 16, quality);
    CHECK(limited.search(again));
  }
}

TEST_CASE("a study is done if its grid is exhausted when the device-hours are used up") {
  Scene scene("none", 1, 100);
  scene.plan.space = {{{"b", IntRange{1, 3}, {}}}, {}};
  scene.plan.max_device_seconds = 6;
  scene.sampler = make_sampler("grid", 3);
  FakeRunner runner(scene.kept, 2, [](const Values&, int step) { return step; });
  runner.seconds_per_step = 1;
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 3);
}

TEST_CASE("with equal shares, the remaining trials get the devices of those that ended") {
  Scene scene("none", 2, 2);
  scene.plan.share = {ShareMode::kEqual, 4, 1, 4};
  FakeRunner runner(scene.kept, 20, quality);
  Search search = scene.make_search(runner);
  // If starting a trial is slow, one call may start fewer trials than it could.
  while (!runner.is_active(1)) REQUIRE(search.advance(Time()));
  for (const int number : {0, 1}) CHECK(runner.share(number).replicas == 2);
  runner.ends[0] = {TrialEnd::How::kFailed, "exit code 1"};
  REQUIRE(search.advance(Time()));
  CHECK(runner.share(1).replicas == 4);
  // The new process of the trial must be sent its share again.
  runner.ends[1] = {TrialEnd::How::kKilled, "killed"};
  REQUIRE(search.advance(Time()));
  CHECK(runner.share(1).replicas == 4);
  search.stop();
  while (search.advance(Time())) {
  }
  FakeRunner next(scene.kept, 20, quality);
  Search resumed = scene.make_search(next);
  REQUIRE(resumed.advance(Time()));
  CHECK(next.share(1).replicas == 4);
}

TEST_CASE("with shares by promise, the better trial has the higher weight") {
  Scene scene("none", 2, 2);
  scene.plan.share = {ShareMode::kPromise, 4, 1, 4};
  for (const double lr : {0.001, 0.1})
    scene.journal.create_trial(scene.study().id, TrialState::kWaiting, {{"fixed_params", {{"lr", lr}}}});
  FakeRunner runner(scene.kept, 20, quality);
  Search search = scene.make_search(runner);
  while (!runner.is_active(1)) REQUIRE(search.advance(Time()));
  for (int i = 0; i < 2; ++i) REQUIRE(search.advance(Time()));
  CHECK(runner.share(0).weight > 1);
  CHECK(runner.share(1).weight < 1);
  CHECK_FALSE(runner.share(0).replicas.has_value());
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_devices_test
