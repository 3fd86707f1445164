// Which run has which devices of this machine: what the agent knows and decides, without its sockets.
//
// A policy says how many devices each run gets; here they become devices by name. A run keeps those that it has, so
// that a change moves as few as possible. A device that a run is to give up goes to its next holder only when the run
// has said that it let go of it: what a run was told that it may use, and has not yet answered otherwise, counts as in
// its hands.
//
// A run that trains keeps at least its minimum. Of those that wait, the one submitted first is served first. A run that
// was not measured yet gets at most its fair share by weight, since nothing is known of what more would do for it.
//
// A run may prefer a number of devices, whatever speedup the policy expects. It gets its fair share by weight, but no
// more than that number, and reaches the number where the policy leaves devices unused.
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

// What a run says of itself.
struct DeviceUser {
  std::string name;
  std::string kind;  // "gpu" or "cpu": devices of different kinds are different devices
  int min = 1, max = 1;
  std::vector<std::string> devices;  // that it may use
  std::vector<std::string> held;     // that its processes use, or are about to
  bool pinned = false;               // once it has devices, it keeps exactly these until it ends
  double submitted = 0;
  double service = 0;  // device-seconds that it has held so far
  int changes = 0;     // of its devices, the first allocation not counted
  nlohmann::json hints = nlohmann::json::object();
  double weight = 1;  // of its speedup, beside those of other runs; > 0
  std::optional<int> preferred_count{};  // of its devices, from `min` to `max`; none: as many as the policy decides
};

struct DeviceShare {
  std::uint64_t number = 0;  // counts up for each run
  std::vector<std::string> devices;
  std::string reason;
};

// By which a run is known here.
using UserId = int;

class DeviceShares {
 public:
  // The run is there, or says something new. `seen`: the number of the last share that it took notice of. One that
  // comes with devices has them until the next decision. Returns whether a decision is due: it came, or its limits
  // changed.
  bool set(UserId id, DeviceUser user, std::uint64_t seen, double now);
  void remove(UserId id);
  bool empty() const noexcept { return users_.empty(); }

  // Decides anew how many devices each run is to have, and which.
  void decide(const Policy& policy, double now);

  // The shares that runs have to be told, each once. A share has no device that another run still has in its hands.
  std::map<UserId, DeviceShare> take_news();

 private:
  struct Entry {
    DeviceUser user;
    double said = 0;                  // when
    std::vector<std::string> target;  // that it is to have
    std::string reason;               // none before the first decision
    bool fresh = true;                // nothing was told since it came
    DeviceShare told;
    std::vector<DeviceShare> unseen;  // those told that it took no notice of yet
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
