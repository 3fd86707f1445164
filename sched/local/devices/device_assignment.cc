#include "local/devices/device_assignment.h"

#include <algorithm>
#include <map>

namespace adaptdl::sched {
namespace {

constexpr std::size_t kUnassigned = static_cast<std::size_t>(-1);

class Matching {
 public:
  Matching(const std::vector<DeviceDemand>& demands, const std::set<std::string>& busy)
      : demands_(demands), busy_(busy) {
    for (const DeviceDemand& demand : demands)
      for (const std::string& device : demand.allowed) owners_.emplace(device, kUnassigned);
  }

  bool solve() {
    std::vector<int> got(demands_.size(), 0);
    for (std::size_t i = 0; i < demands_.size(); ++i) {
      for (const std::string& device : demands_[i].preferred) {
        const auto& allowed = demands_[i].allowed;
        if (got[i] >= demands_[i].count || std::ranges::find(allowed, device) == allowed.end()) continue;
        if (owners_[device] != kUnassigned) continue;
        owners_[device] = i;
        ++got[i];
      }
    }
    for (std::size_t i = 0; i < demands_.size(); ++i) {
      for (; got[i] < demands_[i].count; ++got[i]) {
        visited_.clear();
        if (!gain_one(i)) return false;
      }
    }
    return true;
  }

  std::vector<std::string> devices_of(std::size_t demand) const {
    std::vector<std::string> devices;
    const auto add = [&](const std::string& device) {
      const auto owner = owners_.find(device);
      if (owner == owners_.end() || owner->second != demand) return;
      if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
    };
    std::ranges::for_each(demands_[demand].preferred, add);
    std::ranges::for_each(demands_[demand].allowed, add);
    return devices;
  }

 private:
  // Gives a demand one more device: an unassigned one, or one whose owner can use another instead.
  bool gain_one(std::size_t demand) {
    for (const bool take_busy : {false, true}) {
      for (const std::string& device : demands_[demand].allowed) {
        if (owners_[device] != kUnassigned || busy_.contains(device) != take_busy) continue;
        owners_[device] = demand;
        return true;
      }
    }
    for (const std::string& device : demands_[demand].allowed) {
      const std::size_t owner = owners_[device];
      if (owner == demand || !visited_.insert(device).second || !gain_one(owner)) continue;
      owners_[device] = demand;
      return true;
    }
    return false;
  }

  const std::vector<DeviceDemand>& demands_;
  const std::set<std::string>& busy_;
  std::map<std::string, std::size_t> owners_;
  std::set<std::string> visited_;
};

}  // namespace

std::optional<std::vector<std::vector<std::string>>> assign(const std::vector<DeviceDemand>& demands,
                                                            const std::set<std::string>& busy) {
  Matching matching(demands, busy);
  if (!matching.solve()) return {};
  std::vector<std::vector<std::string>> devices;
  for (std::size_t i = 0; i < demands.size(); ++i) devices.push_back(matching.devices_of(i));
  return devices;
}

}  // namespace adaptdl::sched
