// Assigns devices by name to runs that need a number of them. This is a matching: each run may use some devices only.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace adaptdl::sched {

struct DeviceDemand {
  int count = 0;
  std::vector<std::string> allowed;    // in the order in which the run wants them
  std::vector<std::string> preferred;  // devices that it has; the first `count` of them are kept wherever possible
};

// Returns the devices of each demand, with the preferred ones first, or none if there are not enough for all. Unless it
// is preferred, a `busy` device (one that a run holds or was offered) is used only if the demand allows no other
// unassigned device. If two demands prefer the same device, the first one gets it.
std::optional<std::vector<std::vector<std::string>>> assign(const std::vector<DeviceDemand>& demands,
                                                            const std::set<std::string>& busy = {});

}  // namespace adaptdl::sched
