// Tests which devices the runs on a machine get, and when a device that was in use goes to another run.
#include "local/devices/device_shares.h"

#include <doctest/doctest.h>

#include <string>

#include "device_shares_support.h"
#include "golden.h"

namespace device_shares_test {

using namespace device_shares_support;

TEST_CASE("a single run gets its maximum number of devices") {
  Machine machine;
  machine.come(1, user(1, 3, 0));
  machine.decide();
  CHECK(machine.has(1) == Devices{"0", "1", "2"});
  CHECK_FALSE(machine.sent[1].reason.empty());
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
  CHECK_GOLDEN(machine.sent[2].reason);
  // The run has acknowledged the change, but has not released the devices yet.
  machine.shares.set(1, machine.users[1], machine.sent[1].number, machine.now);
  machine.send_changes();
  CHECK(machine.has(2).empty());
  machine.users[1].held = {"0", "1", "3"};
  machine.shares.set(1, machine.users[1], machine.sent[1].number, machine.now);
  machine.send_changes();
  CHECK(machine.has(2) == Devices{"2"});
  machine.heed(1);
  CHECK(machine.has(2) == Devices{"2", "3"});
}

TEST_CASE("a device is considered in use until its run acknowledges a share without it") {
  Machine machine;
  machine.come(1, user(1, 4, 0));
  machine.decide();
  const DeviceShare first = machine.sent[1];
  CHECK(first.devices.size() == 4);
  machine.come(2, user(1, 4, 1));
  machine.decide();
  // The run reports no devices, but still acknowledges only its first share.
  machine.shares.set(1, machine.users[1], first.number, machine.now);
  machine.send_changes();
  CHECK(machine.has(2).empty());
  machine.shares.set(1, machine.users[1], machine.sent[1].number, machine.now);
  machine.send_changes();
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
  CHECK(machine.sent[2].reason.find("waits") == 0);
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
  CHECK(machine.shares.set(1, machine.users[1], machine.sent[1].number, machine.now));
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
  machine.send_changes();
  CHECK(machine.sent.empty());
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
  CHECK_GOLDEN(machine.sent[3].reason);
  CHECK_GOLDEN(machine.sent[4].reason);
}

}  // namespace device_shares_test
