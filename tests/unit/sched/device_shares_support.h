// Runs that share the devices of a machine, for tests of their shares.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "local/devices/device_shares.h"
#include "policy/policies.h"

namespace device_shares_support {

using namespace adaptdl::sched;
using Devices = std::vector<std::string>;

inline DeviceUser user(int min, int max, double submitted, int devices = 4) {
  DeviceUser user;
  user.name = "run";
  user.kind = "cpu";
  user.min = min;
  user.max = max;
  user.submitted = submitted;
  for (int i = 0; i < devices; ++i) user.devices.push_back(std::to_string(i));
  return user;
}

// Runs that follow their allocations when heed() is called.
struct Machine {
  void decide() {
    now += 10;
    shares.decide(*policy, now);
    send_changes();
  }
  void send_changes() {
    for (auto& [id, share] : shares.take_changes()) sent[id] = share;
  }
  void come(UserId id, DeviceUser who) {
    users[id] = std::move(who);
    CHECK(shares.set(id, users[id], 0, now));
  }
  // The run uses the devices it is allocated, and releases all others.
  void heed(UserId id) {
    users[id].held = sent[id].devices;
    shares.set(id, users[id], sent[id].number, now);
    send_changes();
  }
  const Devices& has(UserId id) { return sent[id].devices; }

  std::unique_ptr<Policy> policy = make_policy("adaptive", {.restart_cost = 2});
  DeviceShares shares;
  std::map<UserId, DeviceUser> users;
  std::map<UserId, DeviceShare> sent;
  double now = 1e9;
};

}  // namespace device_shares_support
