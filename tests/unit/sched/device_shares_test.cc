#include "local/devices/device_shares.h"

#include <doctest/doctest.h>

#include "policy/policies.h"

namespace device_shares_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using Devices = std::vector<std::string>;

namespace {

DeviceUser user(int min, int max, double submitted, int devices = 4) {
  DeviceUser user;
  user.name = "run";
  user.kind = "cpu";
  user.min = min;
  user.max = max;
  user.submitted = submitted;
  for (int i = 0; i < devices; ++i) user.devices.push_back(std::to_string(i));
  return user;
}

// Returns the hints of a program that has run on up to 8 replicas. On more than one, a step takes `sync` seconds
// longer.
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

// Runs that follow their allocations when heed() is called.
struct Machine {
  void decide() {
    now += 10;
    shares.decide(*policy, now);
    tell();
  }
  void tell() {
    for (auto& [id, share] : shares.take_news()) told[id] = share;
  }
  void come(UserId id, DeviceUser who) {
    users[id] = std::move(who);
    CHECK(shares.set(id, users[id], 0, now));
  }
  // The run uses the devices it is allocated, and releases all others.
  void heed(UserId id) {
    users[id].held = told[id].devices;
    shares.set(id, users[id], told[id].number, now);
    tell();
  }
  const Devices& has(UserId id) { return told[id].devices; }

  std::unique_ptr<Policy> policy = make_policy("adaptive", {.restart_cost = 2});
  DeviceShares shares;
  std::map<UserId, DeviceUser> users;
  std::map<UserId, DeviceShare> told;
  double now = 1e9;
};

}  // namespace

TEST_CASE("a single run gets its maximum number of devices") {
  Machine machine;
  machine.come(1, user(1, 3, 0));
  machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1", "2"});
  CHECK_FALSE(machine.told[1].reason.empty());
}

TEST_CASE("unmeasured runs share devices equally, and each keeps its first devices") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  machine.decide();
  machine.heed(1);
  machine.come(2, user(1, 4, 1));
  machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1"});
  machine.heed(1);
  machine.heed(2);
  CHECK(machine.has(2) == Devices{"2", "3"});
  for (int i = 0; i < 20; ++i) machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1"});
  CHECK(machine.has(2) == Devices{"2", "3"});
  machine.shares.remove(1);
  machine.decide();
  CHECK(machine.has(2) == Devices{"2", "3", "0", "1"});
}

TEST_CASE("a device is given to the next run only after the previous one releases it") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  machine.decide();
  machine.heed(1);
  machine.come(2, user(1, 4, 1));
  machine.decide();
  CHECK(machine.has(2).empty());
  CHECK(machine.told[2].reason.find("; 2 more when others release them") != std::string::npos);
  // The run has acknowledged the change, but has not released the devices yet.
  machine.shares.set(1, machine.users[1], machine.told[1].number, machine.now);
  machine.tell();
  CHECK(machine.has(2).empty());
  machine.users[1].held = {"0", "1", "3"};
  machine.shares.set(1, machine.users[1], machine.told[1].number, machine.now);
  machine.tell();
  CHECK(machine.has(2) == Devices{"2"});
  machine.heed(1);
  CHECK(machine.has(2) == Devices{"2", "3"});
}

TEST_CASE("a device counts as in use until its run acknowledges a share without it") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  machine.decide();
  const DeviceShare first = machine.told[1];
  CHECK(first.devices.size() == 4);
  machine.come(2, user(1, 4, 1));
  machine.decide();
  // The run reports no devices, but still acknowledges only its first share.
  machine.shares.set(1, machine.users[1], first.number, machine.now);
  machine.tell();
  CHECK(machine.has(2).empty());
  machine.shares.set(1, machine.users[1], machine.told[1].number, machine.now);
  machine.tell();
  CHECK(machine.has(2) == Devices{"2", "3"});
}

TEST_CASE("a started run keeps its minimum, and one that cannot start waits with a reason") {
  Machine machine;
  machine.come(1, user(3, 4, 0));
  machine.decide();
  machine.heed(1);
  machine.come(2, user(2, 4, 1));
  for (int i = 0; i < 20; ++i) {
    machine.decide();
    machine.heed(1);
    CHECK(machine.has(1).size() >= 3);
    CHECK(machine.has(2).empty());
  }
  CHECK(machine.told[2].reason.find("waits") == 0);
  machine.shares.remove(1);
  machine.decide();
  CHECK(machine.has(2).size() == 4);
}

TEST_CASE("waiting runs are served in order of submission") {
  Machine machine;
  machine.come(1, user(4, 4, 0));
  machine.decide();
  machine.heed(1);
  machine.come(2, user(4, 4, 2));
  machine.come(3, user(4, 4, 1));
  machine.decide();
  machine.shares.remove(1);
  machine.decide();
  CHECK(machine.has(2).empty());
  CHECK(machine.has(3).size() == 4);
}

TEST_CASE("a pinned run keeps exactly its devices") {
  Machine machine;
  DeviceUser pinned = user(1, 4, 0);
  pinned.pinned = true;
  machine.come(1, pinned);
  machine.decide();
  machine.heed(1);
  CHECK(machine.has(1).size() == 4);
  machine.come(2, user(1, 4, 1));
  machine.decide();
  CHECK(machine.has(1).size() == 4);
  CHECK(machine.has(2).empty());
}

TEST_CASE("a run whose minimum is raised keeps its devices until enough are free") {
  Machine machine;
  machine.come(1, user(1, 2, 0));
  machine.come(2, user(2, 2, 1));
  machine.decide();
  machine.heed(1);
  machine.heed(2);
  machine.users[1].min = machine.users[1].max = 4;
  CHECK(machine.shares.set(1, machine.users[1], machine.told[1].number, machine.now));
  machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1"});
  CHECK(machine.has(2) == Devices{"2", "3"});
  machine.shares.remove(2);
  machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1", "2", "3"});
}

TEST_CASE("a run with few usable devices gets them from a run that can use others") {
  Machine machine;
  machine.come(1, user(1, 2, 0));
  machine.decide();
  machine.heed(1);
  CHECK(machine.has(1) == Devices{"0", "1"});
  DeviceUser narrow = user(1, 1, 1);
  narrow.devices = {"1"};
  machine.come(2, narrow);
  machine.decide();
  machine.heed(1);
  CHECK(machine.has(1) == Devices{"0", "2"});
  CHECK(machine.has(2) == Devices{"1"});
}

TEST_CASE("devices of different kinds with the same name are distinct") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  DeviceUser gpu = user(2, 2, 1, 2);
  gpu.kind = "gpu";
  machine.come(2, gpu);
  machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1", "2", "3"});
  CHECK(machine.has(2) == Devices{"0", "1"});
}

TEST_CASE("a new run keeps the devices it already holds, and no other run gets them") {
  Machine machine;
  DeviceUser first = user(1, 2, 0), second = user(1, 2, 1);
  first.held = {"3", "1"};
  second.held = {"0"};
  machine.come(1, first);
  machine.tell();
  CHECK(machine.told.empty());
  machine.come(2, second);
  machine.decide();
  CHECK(machine.has(1) == Devices{"3", "1"});
  CHECK(machine.has(2) == Devices{"0", "2"});
}

TEST_CASE("of two runs that hold the same device, the one submitted later moves") {
  Machine machine;
  DeviceUser first = user(1, 1, 0, 2), second = user(1, 1, 1, 2);
  first.held = second.held = {"0"};
  machine.come(1, first);
  machine.come(2, second);
  machine.decide();
  CHECK(machine.has(2) == Devices{"1"});
  machine.heed(2);
  CHECK(machine.has(1) == Devices{"0"});
}

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
    CHECK(machine.shares.set(1, machine.users[1], machine.told[1].number, machine.now));
    machine.users[2].weight = 0.25;
    CHECK(machine.shares.set(2, machine.users[2], machine.told[2].number, machine.now));
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
  machine.shares.set(1, machine.users[1], machine.told[1].number, machine.now);
  DeviceUser heavy = user(1, 4, 1);
  heavy.weight = 1e3;
  machine.come(2, heavy);
  machine.decide();
  machine.heed(1);
  machine.heed(2);
  CHECK(machine.has(1).size() == 1);
  CHECK(machine.has(2).size() == 3);
}

TEST_CASE("a run gets its preferred number of devices up to its fair share, regardless of policy") {
  for (const bool measured : {false, true}) {
    CAPTURE(measured);
    Machine machine;
    // Each run prefers `count` of four devices, but would get only one by the policy's decision.
    const auto prefer = [&](UserId id, int count) {
      DeviceUser& user = machine.users[id];
      user.max = count;
      user.preferred_count = count;
      if (measured) user.hints = measured_hints(10);
      machine.shares.set(id, user, machine.told[id].number, machine.now);
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
    CHECK(machine.told[1].reason == "2 devices, as many as preferred");
    // A third run does not wait, and the other two return to what they prefer once it has ended.
    machine.come(3, user(1, 4, 2));
    settle({1, 2, 3});
    CHECK(machine.has(1).size() == 2);
    CHECK(machine.has(2).size() == 1);
    CHECK(machine.has(3).size() == 1);
    CHECK(machine.told[2].reason == "1 of the preferred 2 devices: other runs need the rest");
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
    machine.shares.set(2, machine.users[2], machine.told[2].number, machine.now);
    settle({2, 3});
    CHECK(machine.has(2).size() == 2);
  }
}

TEST_CASE("a run with a preferred number keeps its fair share beside one that scales better") {
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
  CHECK(machine.shares.set(2, machine.users[2], machine.told[2].number, machine.now));
  settle();
  CHECK(machine.has(1).size() == 2);
  CHECK(machine.has(2).size() == 2);
  CHECK(machine.told[2].reason == "2 of the preferred 3 devices: other runs need the rest");
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

TEST_CASE("new bounds require a decision at once, and new hints do not") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  machine.decide();
  machine.users[1].hints = {{"progress", 1}};
  CHECK_FALSE(machine.shares.set(1, machine.users[1], 1, machine.now));
  machine.users[1].max = 2;
  CHECK(machine.shares.set(1, machine.users[1], 1, machine.now));
}

TEST_CASE("a waiting run does not take devices from started ones") {
  Machine machine;
  machine.come(1, user(1, 2, 0));
  machine.come(2, user(1, 2, 1));
  machine.decide();
  machine.heed(1);
  machine.heed(2);
  machine.come(3, user(3, 4, 2));
  DeviceUser never = user(5, 8, 3);
  machine.come(4, never);
  machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1"});
  CHECK(machine.has(2) == Devices{"2", "3"});
  CHECK(machine.told[3].reason == "waits: needs at least 3 devices, but the minimums of others leave fewer");
  CHECK(machine.told[4].reason == "waits: needs at least 5 devices, but may use only 4");
}

}  // namespace device_shares_test
