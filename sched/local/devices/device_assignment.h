// Assigns named devices to runs, each of which needs a given number of devices. This is a matching problem, since each
// run may be restricted to some of the devices.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace adaptdl::sched {

struct DeviceDemand {
  int count = 0;
  std::vector<std::string> allowed;    // in the run's order of preference
  std::vector<std::string> preferred;  // devices that the run has; it keeps the first `count` if possible
};

// Returns the devices for each demand, preferred devices first, or nullopt if there are not enough devices for all
// demands. A `busy` device (one that a run holds or was offered) is assigned to a demand that does not prefer it only
// if the demand allows no other unassigned device. If two demands prefer the same device, the device is assigned to the
// first demand.
std::optional<std::vector<std::vector<std::string>>> assign(const std::vector<DeviceDemand>& demands,
                                                            const std::set<std::string>& busy = {});

}  // namespace adaptdl::sched
