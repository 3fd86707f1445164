// How many nodes a cluster should have for its jobs to make good use of them.
//
// Utility is the speedup of all jobs over that which all the resources would give if jobs scaled perfectly. More nodes
// mean more replicas a job and so a lower utility.
#pragma once

#include <functional>

namespace adaptdl::sched {

struct UtilityRange {
  double lowest = 0.35, highest = 0.65;
};

// As many as now if their utility is within the range; else, of `least` to `most`, those whose utility is nearest to
// the middle. `utility` is asked for a few numbers of nodes only, on the way of a bisection, and never twice for one.
// REQUIRES 0 <= least <= now <= most.
int desired_nodes(int now, int least, int most, const UtilityRange& range, const std::function<double(int)>& utility);

}  // namespace adaptdl::sched
