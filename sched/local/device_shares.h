// DeviceShares decides which run has which devices of this machine. It is the logic of the agent, without sockets.
//
// A policy decides how many devices each run gets, and DeviceShares chooses them by name. A run keeps those that it
// has, so that a change moves as few as possible. A device that a run must give up goes to its next holder only when
// the run has reported that it released it: an unacknowledged offer counts as held.
//
// A run that trains keeps at least its minimum. Among those that wait, the one submitted first is served first. A run
// that was not measured yet gets at most its fair share by weight, since the gain from more is unknown.
//
// A run may prefer a number of devices, whatever speedup the policy expects. It gets its fair share by weight, but no
// more than that number, and reaches the number if the policy leaves devices unused.
//
// Threading: one thread at a time. Times are seconds since the epoch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "local/device_assignment.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// What a run reports about itself.
struct DeviceUser {
  std::string name;
  std::string kind;  // "gpu" or "cpu": devices of different kinds are different devices
  int min = 1, max = 1;
  std::vector<std::string> devices;  // devices that it may use
  std::vector<std::string> held;     // devices that its processes use or are about to use
  bool pinned = false;               // once it has devices, it keeps exactly these until it ends
  double submitted = 0;
  double service = 0;  // device-seconds that it has held so far
  int changes = 0;     // of its devices; the first allocation is not counted
  nlohmann::json hints = nlohmann::json::object();
  double weight = 1;                     // of its speedup, relative to other runs; > 0
  std::optional<int> preferred_count{};  // number of devices, from `min` to `max`; none: the policy decides
};

struct DeviceShare {
  std::uint64_t number = 0;  // counts up for each run
  std::vector<std::string> devices;
  std::string reason;
};

// Identifies a run in DeviceShares.
using UserId = int;

class DeviceShares {
 public:
  // Adds a run, or updates what it reports. `seen` is the number of the last share that it acknowledged. A new run
  // keeps the devices that it has until the next decision. Returns whether a decision is due: it is new, or its limits
  // changed.
  bool set(UserId id, DeviceUser user, std::uint64_t seen, double now);
  void remove(UserId id);
  bool empty() const noexcept { return users_.empty(); }

  // Decides again how many devices each run should have, and which.
  void decide(const Policy& policy, double now);

  // Returns the shares that must be sent, each once. A share has no device that another run holds or was offered.
  std::map<UserId, DeviceShare> take_news();

 private:
  struct Entry {
    DeviceUser user;
    double said = 0;                  // when the run last reported
    std::vector<std::string> target;  // devices that it should have
    std::string reason;               // empty before the first decision
    bool fresh = true;                // no share was sent since the run came
    DeviceShare told;
    std::vector<DeviceShare> unseen;  // earlier shares that it may still use, as it has not acknowledged a later one
  };
  using Order = std::vector<std::pair<UserId, Entry*>>;
  struct Size {
    int devices = 0;
    std::string reason;
  };

  Order in_order();
  std::set<std::string> in_hands(const Entry& entry) const;
  static std::vector<DeviceDemand> demands(const Order& order, const std::vector<int>& sizes);
  static std::vector<int> least_sizes(const Order& order);
  static std::vector<int> fair_sizes(const Order& order, std::vector<int> sizes, const std::vector<int>& limits);
  Decision ask(const Policy& policy, const Order& order, const std::vector<int>& floors, const std::vector<int>& fair,
               double now);
  std::vector<Size> sizes(const Policy& policy, const Order& order, double now);

  std::map<UserId, Entry> users_;
  std::shared_ptr<const PolicyState> state_;
};

}  // namespace adaptdl::sched
