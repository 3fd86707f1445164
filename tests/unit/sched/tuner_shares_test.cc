#include "tuner/trial_shares.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <stdlib.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "local/record/run_control.h"
#include "temporary_directory.h"
#include "tuner/share_sender.h"

namespace adaptdl::sched::tune::tuner_shares_test {
namespace {

class SharesRunner final : public TrialRunner {
 public:
  void start(int, const Values&) override {}
  void stop(int) override {}
  bool is_active(int) const override { return true; }
  std::vector<TrialEvent> poll() override { return {}; }
  void discard(int) override {}
  void release(int) override {}
  void set_share(int number, const RunShare& share) override {
    shares[number] = share;
    ++sent;
  }

  std::map<int, RunShare> shares;
  int sent = 0;
};

struct SharesScene {
  explicit SharesScene(ShareMode mode, int devices = 4, int max = 4) : shares({mode, devices, 1, max}, runner) {
    study.directions = {Direction::kMaximize};
    for (int number = 0; number < 4; ++number) {
      Trial& trial = study.trials.emplace_back();
      trial.number = number;
    }
  }
  void update(const std::vector<int>& running, bool reported = false) { shares.update(study, running, reported); }
  std::optional<int> replicas(int trial) { return runner.shares[trial].replicas; }

  SharesRunner runner;
  TrialShares shares;
  Study study;
};

TEST_CASE("equal shares add up to the number of devices unless the limits of a trial prevent it") {
  CHECK(equal_replicas({ShareMode::kEqual, 4, 1, 4}, 3) == std::vector{2, 1, 1});
  CHECK(equal_replicas({ShareMode::kEqual, 8, 1, 3}, 2) == std::vector{3, 3});
  CHECK(equal_replicas({ShareMode::kEqual, 4, 2, 4}, 3) == std::vector{2, 2, 2});
  CHECK(equal_replicas({ShareMode::kEqual, 2, 1, 2}, 3) == std::vector{1, 1, 1});
  CHECK(equal_replicas({ShareMode::kEqual, 4, 1, 4}, 0).empty());
}

TEST_CASE("in goodput mode, no share is sent") {
  SharesScene scene(ShareMode::kGoodput);
  scene.study.trials[0].intermediate = {{1, 0.5}};
  scene.update({0, 1}, true);
  CHECK(scene.runner.sent == 0);
}

TEST_CASE("equal shares follow the number of running trials and are sent only on a change") {
  SharesScene scene(ShareMode::kEqual);
  scene.update({0});
  CHECK(scene.replicas(0) == 4);
  scene.update({0, 1});
  CHECK(scene.replicas(0) == 2);
  CHECK(scene.replicas(1) == 2);
  scene.update({0, 1}, true);
  CHECK(scene.runner.sent == 3);
  scene.update({1});
  CHECK(scene.replicas(1) == 4);
  CHECK(scene.runner.shares.at(1).weight == 1);
}

TEST_CASE("a restarted trial is sent its share again") {
  SharesScene scene(ShareMode::kEqual);
  scene.update({0, 1});
  scene.runner.shares.clear();
  scene.shares.started(1);
  scene.update({0, 1});
  CHECK_FALSE(scene.runner.shares.contains(0));
  CHECK(scene.replicas(1) == 2);
}

TEST_CASE("promise weights are sent only after large changes, and begin at 1 for a new run") {
  SharesScene scene(ShareMode::kPromise);
  scene.update({0, 1});
  CHECK(scene.runner.sent == 0);
  scene.study.trials[0].intermediate = {{1, 0.5}};
  scene.study.trials[1].intermediate = {{1, 0.1}};
  scene.update({0, 1}, true);
  CHECK(scene.runner.sent == 2);
  CHECK(scene.runner.shares.at(0).weight > kWeightChange);
  CHECK(scene.runner.shares.at(1).weight < 1 / kWeightChange);
  CHECK_FALSE(scene.replicas(0).has_value());
  scene.study.trials[0].intermediate[1] = 0.501;
  scene.update({0, 1}, true);
  CHECK(scene.runner.sent == 2);
  // The only trial that is left has the same weight as any other run.
  scene.update({1});
  CHECK(std::abs(scene.runner.shares.at(1).weight - 1) < 1e-9);
}

TEST_CASE("a share is sent once the run exists, and resent until the run acknowledges it") {
  const ::testing::TemporaryDirectory directory;
  ::setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  const auto runs = directory.path() / "runs";
  const auto find = [&] { return read_run(runs, "s-0"); };
  ShareSender sender;
  sender.set({.weight = 2, .replicas = 3});
  sender.tick(find);
  RunControl control(RunRecord::named(runs, "s-0"), RunStatus());
  control.serve();
  // Returns the next request, while the sender is ticked repeatedly as in a search.
  const auto next = [&]() -> std::optional<RunRequest> {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      sender.tick(find);
      pollfd polled{control.fd(), POLLIN, 0};
      if (::poll(&polled, 1, 10) != 1) continue;
      if (auto requests = control.take(); !requests.empty()) return std::move(requests.front());
    }
    return {};
  };
  for (const bool answered : {false, true}) {
    auto request = next();
    REQUIRE(request.has_value());
    CHECK(request->share == RunShare{2, 3});
    if (answered) request->accept();
  }
  // The sender may not have read the answer when the next share is set.
  sender.set({});
  auto request = next();
  REQUIRE(request.has_value());
  CHECK(request->share == RunShare());
}

TEST_CASE("share modes are found by name") {
  CHECK(find_share_mode("goodput") == ShareMode::kGoodput);
  CHECK(find_share_mode("promise") == ShareMode::kPromise);
  CHECK(find_share_mode("equal") == ShareMode::kEqual);
  CHECK_FALSE(find_share_mode("").has_value());
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_shares_test
