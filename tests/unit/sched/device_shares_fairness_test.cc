// Tests how devices are divided among runs that scale differently, or have weights or preferred numbers of devices.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "device_shares_support.h"
#include "golden.h"

namespace device_shares_fairness_test {

using namespace device_shares_support;

namespace {

// Returns the hints of a program that has run on up to 8 replicas. On more than one replica, a step takes `sync`
// seconds longer.
nlohmann::json measured_hints(double sync) {
  return {{"initBatchSize", 1024},
          {"maxProfiledReplicas", 8},
          {"gradParams", {{"norm", 1}, {"var", 1}}},
          {"perfParams",
           {{"alpha_c", 1e-4},
            {"beta_c", 1e-3},
            {"alpha_n", sync},
            {"beta_n", 0},
            {"alpha_r", sync},
            {"beta_r", 0},
            {"gamma", 1}}}};
}

}  // namespace

TEST_CASE("the run that scales better gets more devices, and the other keeps its minimum") {
  Machine machine;
  DeviceUser scales = user(1, 8, 0, 8), does_not = user(1, 8, 1, 8);
  scales.hints = measured_hints(0.001);
  does_not.hints = measured_hints(10);
  machine.come(1, scales);
  machine.come(2, does_not);
  machine.decide();
  CHECK(machine.has(1).size() == 7);
  CHECK(machine.has(2).size() == 1);
}

TEST_CASE("weights decide between unmeasured runs and between runs that scale alike") {
  for (const bool measured : {false, true}) {
    CAPTURE(measured);
    Machine machine;
    DeviceUser light = user(1, 8, 0, 8), heavy = user(1, 8, 1, 8);
    if (measured) {
      light.hints = heavy.hints = measured_hints(0.1);
    }
    light.weight = 0.25;
    heavy.weight = 1.75;
    // A run without measurements grows step by step.
    const auto settle = [&] {
      for (int cycle = 0; cycle < 3; ++cycle) {
        machine.decide();
        for (const UserId id : {1, 2, 1, 2}) machine.heed(id);
      }
    };
    machine.come(1, light);
    machine.come(2, heavy);
    settle();
    CHECK(machine.has(1).size() <= 2);
    CHECK(machine.has(2).size() >= 6);
    // Swapping the weights takes effect immediately.
    machine.users[1].weight = 1.75;
    CHECK(machine.shares.set(1, machine.users[1], machine.sent[1].number, machine.now));
    machine.users[2].weight = 0.25;
    CHECK(machine.shares.set(2, machine.users[2], machine.sent[2].number, machine.now));
    settle();
    CHECK(machine.has(1).size() >= 6);
    CHECK(machine.has(2).size() <= 2);
  }
}

TEST_CASE("no weight pushes a started run below its minimum") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  machine.decide();
  machine.heed(1);
  machine.users[1].weight = 1e-3;
  machine.shares.set(1, machine.users[1], machine.sent[1].number, machine.now);
  DeviceUser heavy = user(1, 4, 1);
  heavy.weight = 1e3;
  machine.come(2, heavy);
  machine.decide();
  machine.heed(1);
  machine.heed(2);
  CHECK(machine.has(1).size() == 1);
  CHECK(machine.has(2).size() == 3);
}

TEST_CASE("a run gets its preferred number of devices up to its fair share, even if the policy would give it fewer") {
  for (const bool measured : {false, true}) {
    CAPTURE(measured);
    Machine machine;
    // Each run prefers `count` of four devices, but the policy alone would give it only one.
    const auto prefer = [&](UserId id, int count) {
      DeviceUser& user = machine.users[id];
      user.max = count;
      user.preferred_count = count;
      if (measured) user.hints = measured_hints(10);
      machine.shares.set(id, user, machine.sent[id].number, machine.now);
    };
    const auto settle = [&](const std::vector<UserId>& ids) {
      for (int cycle = 0; cycle < 5; ++cycle) {
        machine.decide();
        for (int round = 0; round < 2; ++round)
          for (const UserId id : ids) machine.heed(id);
      }
    };
    machine.come(1, user(1, 4, 0));
    machine.come(2, user(1, 4, 1));
    for (const UserId id : {1, 2}) prefer(id, 2);
    settle({1, 2});
    CHECK(machine.has(1).size() == 2);
    CHECK(machine.has(2).size() == 2);
    CHECK_GOLDEN(machine.sent[1].reason);
    // A third run does not wait, and the other two return to what they prefer once it has ended.
    machine.come(3, user(1, 4, 2));
    settle({1, 2, 3});
    CHECK(machine.has(1).size() == 2);
    CHECK(machine.has(2).size() == 1);
    CHECK(machine.has(3).size() == 1);
    CHECK_GOLDEN(machine.sent[2].reason);
    machine.shares.remove(3);
    settle({1, 2});
    CHECK(machine.has(2).size() == 2);
    machine.shares.remove(1);
    prefer(2, 4);
    settle({2});
    CHECK(machine.has(2).size() == 4);
    // A run that prefers all devices leaves another run its share, and does not wait for a device when it restarts.
    machine.come(3, user(1, 4, 2));
    settle({2, 3});
    CHECK(machine.has(2).size() == 2);
    CHECK(machine.has(3).size() == 2);
    machine.users[2].held.clear();
    machine.shares.set(2, machine.users[2], machine.sent[2].number, machine.now);
    settle({2, 3});
    CHECK(machine.has(2).size() == 2);
  }
}

TEST_CASE("a run with a preferred number of devices gets its fair share beside a run that scales better") {
  Machine machine;
  DeviceUser scales = user(1, 4, 0), prefers = user(1, 3, 1);
  scales.hints = measured_hints(0.001);
  prefers.hints = measured_hints(10);
  machine.come(1, scales);
  machine.come(2, prefers);
  const auto settle = [&] {
    for (int cycle = 0; cycle < 3; ++cycle) {
      machine.decide();
      for (const UserId id : {1, 2, 1, 2}) machine.heed(id);
    }
  };
  settle();
  CHECK(machine.has(2).size() == 1);
  machine.users[2].preferred_count = 3;
  CHECK(machine.shares.set(2, machine.users[2], machine.sent[2].number, machine.now));
  settle();
  CHECK(machine.has(1).size() == 2);
  CHECK(machine.has(2).size() == 2);
  CHECK_GOLDEN(machine.sent[2].reason);
}

TEST_CASE("a run that prefers more than its fair share gets otherwise unused devices") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  machine.users[1].hints = measured_hints(10);
  machine.come(2, user(1, 3, 1));
  machine.users[2].preferred_count = 3;
  for (const UserId id : {1, 2}) machine.shares.set(id, machine.users[id], 0, machine.now);
  for (int cycle = 0; cycle < 5; ++cycle) {
    machine.decide();
    for (const UserId id : {1, 2, 1, 2}) machine.heed(id);
    CHECK(machine.has(1).size() == 1);
    CHECK(machine.has(2).size() == 3);
  }
}

}  // namespace device_shares_fairness_test
