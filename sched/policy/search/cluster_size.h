// Chooses how many nodes a cluster should have so that its jobs make good use of them.
//
// Utility is the total speedup of all jobs divided by the speedup that they would have on all resources if they scaled
// perfectly. With more nodes, jobs have more replicas each, and the utility is lower.
#pragma once

#include <functional>

namespace adaptdl::sched {

struct UtilityRange {
  double lowest = 0.35, highest = 0.65;
};

// Returns `now` if its utility is within the range. Otherwise, returns the number from `min_nodes` to `max_nodes` whose
// utility is nearest to the middle of the range. The search is a bisection: it calls `utility` for only a few numbers
// of nodes, and never twice for the same number. REQUIRES 0 <= min_nodes <= now <= max_nodes.
int desired_nodes(int now, int min_nodes, int max_nodes, const UtilityRange& range,
                  const std::function<double(int)>& utility);

}  // namespace adaptdl::sched
