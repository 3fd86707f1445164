#include "tuner/device_ledger.h"

#include <doctest/doctest.h>

#include <tuple>

#include "temporary_directory.h"

namespace adaptdl::sched::tune::tuner_ledger_test {
namespace {

// A study with two running trials.
struct Scene {
  Scene() : journal(directory.path() / "journal.log") {
    const int id = journal.create_study("s", Direction::kMaximize, "accuracy");
    for (int i = 0; i < 2; ++i) journal.create_trial(id, TrialState::kRunning);
  }
  const Study& study() const { return *journal.find("s"); }
  const Trial& trial(int number) const { return study().trials[static_cast<std::size_t>(number)]; }
  void take(DeviceLedger& ledger, int number, const std::string& run, double seconds, bool is_last = true) {
    journal.begin();
    ledger.take(journal, study(), trial(number), {run, seconds, is_last});
    journal.commit();
  }
  double stored(int number) const { return device_seconds(study(), trial(number)); }
  void end(int number) { REQUIRE(journal.finish(trial(number).id, TrialState::kPruned, {})); }

  ::testing::TemporaryDirectory directory;
  Journal journal;
};

TEST_CASE("the highest number of device-seconds of each run counts, and several runs add up") {
  Scene scene;
  DeviceLedger ledger(scene.study());
  scene.take(ledger, 0, "a", 100);
  scene.take(ledger, 0, "a", 150);
  scene.take(ledger, 0, "a", 120);
  CHECK(scene.stored(0) == 150);
  scene.take(ledger, 0, "b", 30);
  scene.take(ledger, 0, "b", 40);
  scene.take(ledger, 1, "c", 1);
  CHECK(scene.stored(0) == 190);
  CHECK(scene.stored(1) == 1);
  CHECK(ledger.total() == 191);
  CHECK(device_seconds(scene.study()) == 191);
  CHECK(scene.trial(0).user_attributes.at(kDeviceSeconds) == 190);
  CHECK(scene.trial(0).user_attributes.at(kCountedRun) == nlohmann::json({{"run", "b"}, {"before", 150}}));
}

TEST_CASE("a run is counted once, even if the search is killed repeatedly") {
  Scene scene;
  for (const auto& [run, seconds, total] : {std::tuple("a", 20.0, 20.0),
                                            {"a", 50.0, 50.0},
                                            {"a", 50.0, 50.0},
                                            {"b", 0.0, 50.0},
                                            {"b", 7.0, 57.0},
                                            {"b", 7.0, 57.0},
                                            {"b", 8.0, 58.0}}) {
    DeviceLedger ledger(scene.study());
    scene.take(ledger, 0, run, seconds);
    CHECK(ledger.total() == total);
    CHECK(scene.stored(0) == total);
  }
}

TEST_CASE("a small increase in device-seconds is counted at once, but is stored only at the end of the run") {
  Scene scene;
  DeviceLedger ledger(scene.study());
  scene.take(ledger, 0, "a", 9, false);
  CHECK(scene.stored(0) == 0);
  CHECK(ledger.total() == 9);
  scene.take(ledger, 0, "a", 5000, false);
  CHECK(scene.stored(0) == 5000);
  scene.take(ledger, 0, "a", 5040, false);
  CHECK(scene.stored(0) == 5000);
  scene.take(ledger, 0, "a", 5060, false);
  CHECK(scene.stored(0) == 5060);
  scene.take(ledger, 0, "a", 5061);
  CHECK(scene.stored(0) == 5061);
  CHECK(ledger.total() == 5061);
}

TEST_CASE("usage after the end of a trial is counted once") {
  Scene scene;
  DeviceLedger ledger(scene.study());
  scene.take(ledger, 0, "a", 20);
  scene.take(ledger, 0, "b", 10);
  scene.end(0);
  scene.take(ledger, 0, "b", 12);
  CHECK(scene.stored(0) == 32);
  CHECK(ledger.total() == 32);
  // No usage of this run was counted before its trial ended.
  scene.end(1);
  for (const double seconds : {4.0, 5.0}) {
    DeviceLedger next(scene.study());
    scene.take(next, 0, "b", 12);
    scene.take(next, 1, "c", seconds);
    CHECK(scene.stored(0) == 32);
    CHECK(scene.stored(1) == seconds);
    CHECK(next.total() == 32 + seconds);
  }
}

TEST_CASE("device-seconds are counted even if another process ends the trial before they are stored") {
  Scene scene;
  DeviceLedger ledger(scene.study());
  scene.take(ledger, 0, "a", 20);
  Journal other(scene.directory.path() / "journal.log");
  for (const bool again : {false, true}) {
    scene.journal.begin();
    ledger.take(scene.journal, scene.study(), scene.trial(0), {"b", again ? 7.0 : 5.0, true});
    ledger.take(scene.journal, scene.study(), scene.trial(1), {"c", 3, true});
    if (!again) REQUIRE(other.finish(scene.trial(0).id, TrialState::kPruned, {}));
    scene.journal.commit();
    ledger.confirm(scene.journal, scene.study());
    CHECK(scene.stored(0) == (again ? 27 : 25));
    CHECK(scene.stored(1) == 3);
  }
  CHECK_FALSE(scene.study().user_attributes.contains(late_device_seconds(1)));
  CHECK(DeviceLedger(scene.study()).total() == ledger.total());
}

TEST_CASE("attributes of the wrong type count as 0") {
  Scene scene;
  scene.journal.set_trial_attribute(scene.trial(0).id, kDeviceSeconds, "many");
  scene.journal.set_trial_attribute(scene.trial(0).id, kCountedRun, {{"run", 7}, {"before", "few"}});
  scene.journal.set_trial_attribute(scene.trial(1).id, kCountedRun, 3);
  DeviceLedger ledger(scene.study());
  CHECK(ledger.total() == 0);
  scene.take(ledger, 0, "a", 1);
  scene.take(ledger, 1, "b", 2);
  CHECK(ledger.total() == 3);
  CHECK(device_seconds(scene.study()) == 3);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_ledger_test
