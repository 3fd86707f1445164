#include "policy/search/cluster_size.h"

#include <cmath>
#include <map>

namespace adaptdl::sched {

int desired_nodes(int now, int min_nodes, int max_nodes, const UtilityRange& range,
                  const std::function<double(int)>& utility) {
  std::map<int, double> known;
  const auto of = [&](int nodes) {
    const auto [entry, added] = known.try_emplace(nodes, 0.0);
    if (added) entry->second = utility(nodes);
    return entry->second;
  };
  if (of(now) >= range.lowest && of(now) <= range.highest) return now;
  const double target = (range.lowest + range.highest) / 2;
  // The search considers at least one node, because a cluster without nodes has no utility.
  int low = of(now) > target ? now : std::max(min_nodes, 1), high = of(now) > target ? max_nodes : now;
  if (of(now) <= 0 || high < low) return min_nodes;
  if (of(high) > target) return high;
  while (low + 1 < high) {
    const int middle = low + (high - low) / 2;
    (of(middle) > target ? low : high) = middle;
  }
  // If both numbers are equally near, the smaller one wins: nodes that make no difference are not worth having.
  return std::abs(of(high) - target) < std::abs(of(low) - target) ? high : low;
}

}  // namespace adaptdl::sched
