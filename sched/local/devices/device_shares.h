// DeviceShares decides which run gets which devices. It contains the agent's logic, without the sockets.
//
// A policy decides how many devices each run gets, and DeviceShares chooses which ones. A run keeps the devices that it
// has where possible, so that few devices move. A device that a run must give up is offered to its next holder only
// after the run has reported that it released the device. A device whose offer has not been acknowledged is treated as
// held.
//
// A run that is training keeps at least its minimum. Waiting runs are served in the order of their submission. A run
// that has not been measured yet gets at most its fair share by weight, since the gain from more devices is unknown.
//
// A run may prefer a number of devices, regardless of the speedup that the policy expects. Such a run gets its fair
// share by weight, up to that number. If the policy leaves devices unused, the run gets more devices, also up to that
// number.
//
// Times are seconds since the epoch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "local/devices/device_assignment.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

// What a run reports about itself.
struct DeviceUser {
  std::string name;
  std::string kind;  // "gpu" or "cpu"; devices of different kinds are distinct, even if they have the same name
  int min = 1, max = 1;
  std::vector<std::string> devices;  // devices that the run may use
  std::vector<std::string> held;     // devices that its processes use or are about to use
  bool pinned = false;               // once the run has devices, it keeps exactly those until it ends
  double submitted = 0;
  double service = 0;  // device-seconds that it has held so far
  int changes = 0;     // number of changes to its allocation, not counting the first allocation
  nlohmann::json hints = nlohmann::json::object();
  double weight = 1;                     // weight of its speedup relative to other runs; > 0
  std::optional<int> preferred_count{};  // number of devices, from `min` to `max`; nullopt: the policy decides
};

struct DeviceShare {
  std::uint64_t number = 0;  // increases with each share of a run
  std::vector<std::string> devices;
  std::string reason;
};

// Identifies a run in DeviceShares.
using UserId = int;

class DeviceShares {
 public:
  // Adds a run, or updates its report. `seen` is the number of the last share that the run acknowledged. A new run
  // keeps the devices that it holds until the next decision. Returns whether a decision is due because the run is new
  // or its limits have changed.
  bool set(UserId id, DeviceUser user, std::uint64_t seen, double now);
  void remove(UserId id);
  bool empty() const noexcept { return users_.empty(); }

  // Decides again how many devices, and which ones, each run should have.
  void decide(const Policy& policy, double now);

  // Returns the shares that must be sent; each share is returned only once. A share contains no device that another run
  // holds or was offered.
  std::map<UserId, DeviceShare> take_changes();

 private:
  struct Entry {
    DeviceUser user;
    double reported_at = 0;           // when the run last reported
    std::vector<std::string> target;  // devices that the run should have
    std::string reason;               // empty before the first decision
    bool fresh = true;                // no share has been sent to the run yet
    DeviceShare offered;
    std::vector<DeviceShare> unacknowledged;  // earlier shares that the run may still be using
  };
  using Order = std::vector<std::pair<UserId, Entry*>>;
  struct Size {
    int devices = 0;
    std::string reason;
  };

  Order in_order();
  std::set<std::string> in_hands(const Entry& entry) const;
  static std::vector<DeviceDemand> demands(const Order& order, const std::vector<int>& sizes);
  static std::vector<int> min_sizes(const Order& order);
  static std::vector<int> fair_sizes(const Order& order, std::vector<int> sizes, const std::vector<int>& limits);
  Decision ask(const Policy& policy, const Order& order, const std::vector<int>& floors, const std::vector<int>& fair,
               double now);
  std::vector<Size> sizes(const Policy& policy, const Order& order, double now);

  std::map<UserId, Entry> users_;
  std::shared_ptr<const PolicyState> state_;
};

}  // namespace adaptdl::sched
