// Devices by name for runs that are to have a number of them, as a matching: each run may use some devices only.
//
// Threading: free of state.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace adaptdl::sched {

struct DeviceDemand {
  int count = 0;
  std::vector<std::string> allowed;    // in the order in which it would have them
  std::vector<std::string> preferred;  // those it has; the first `count` of them are kept wherever that is possible
};

// The devices of each demand, those that it has before others. One that is `busy` (somebody has it in his hands) is
// taken only where no other will do. None if there are not enough for all. The first of two demands that prefer the
// same device gets it.
std::optional<std::vector<std::vector<std::string>>> assign(const std::vector<DeviceDemand>& demands,
                                                            const std::set<std::string>& busy = {});

}  // namespace adaptdl::sched
