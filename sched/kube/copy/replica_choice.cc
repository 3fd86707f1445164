#include "kube/copy/replica_choice.h"

#include <tuple>

namespace adaptdl::kube {

const Replica* choose_replica(std::span<const Replica> replicas, std::optional<int> rank) {
  const Replica* best = nullptr;
  for (const Replica& replica : replicas) {
    if (replica.phase != "Running" || !replica.started || replica.ended || replica.leaving) continue;
    if (rank && replica.rank != *rank) continue;
    if (best == nullptr || std::tuple(-replica.group, replica.rank) < std::tuple(-best->group, best->rank))
      best = &replica;
  }
  return best;
}

}  // namespace adaptdl::kube
