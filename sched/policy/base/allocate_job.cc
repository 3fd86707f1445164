#include <algorithm>

#include "policy/base/free_nodes.h"

namespace adaptdl::sched {
Allocation allocate_job(const JobInfo& job, const std::vector<NodeInfo>& nodes) {
  const int wanted = std::max(job.min_replicas, 1);
  if (wanted > std::min(job.max_replicas, kMaxReplicasPerJob)) return {};
  const NodeInfo* first = nullptr;
  for (const NodeInfo& node : nodes) {
    if (FreeNodes({node}).room(job.resources) < wanted) continue;
    if (!first || std::pair(node.preemptible, node.name) < std::pair(first->preemptible, first->name)) first = &node;
  }
  return first ? Allocation(static_cast<std::size_t>(wanted), first->name) : Allocation();
}

}  // namespace adaptdl::sched
