#include "policy/queue/queue_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/counted.h"
#include "policy/base/comparable.h"

namespace adaptdl::sched {

std::vector<const JobInfo*> by_arrival(const Problem& problem) {
  std::vector<const JobInfo*> jobs;
  for (const JobInfo& job : problem.jobs) jobs.push_back(&job);
  std::ranges::stable_sort(jobs, {}, [](const JobInfo* job) { return comparable(job->creation_time); });
  return jobs;
}

int fixed_replicas(const JobInfo& job) {
  const int min_replicas = std::max(job.min_replicas, 1);
  const int max_replicas = std::min(job.max_replicas, kMaxReplicasPerJob);
  if (max_replicas < min_replicas) return 0;
  return std::clamp(job.requested_replicas > 0 ? job.requested_replicas : max_replicas, min_replicas, max_replicas);
}

const Allocation& previous_allocation(const Problem& problem, const JobInfo& job) {
  static const Allocation nothing;
  const auto found = problem.previous.find(job.name);
  return found == problem.previous.end() ? nothing : found->second;
}

Decision keep_pinned(const Problem& problem, FreeNodes& free) {
  Decision decision;
  decision.desired_nodes = static_cast<int>(problem.nodes.size());
  for (const JobInfo& job : problem.jobs) {
    const Allocation& previous = previous_allocation(problem, job);
    if (job.preemptible || previous.empty()) continue;
    const bool there = free.take(previous, job.resources);
    decision.allocations[job.name] = there ? previous : Allocation();
    decision.reasons[job.name] = there ? fmt::format("keeps {}: not preemptible", describe(previous))
                                       : "waits: not preemptible, and its previous allocation no longer fits";
  }
  return decision;
}

std::string describe(const Allocation& allocation) {
  const std::size_t nodes = std::set<std::string>(allocation.begin(), allocation.end()).size();
  return counted(allocation.size(), "replica") + " on " + counted(nodes, "node");
}

std::string shortage_reason(const FreeNodes& empty, const JobInfo& job, int replicas) {
  if (replicas <= 0 && job.min_replicas > kMaxReplicasPerJob && job.min_replicas <= job.max_replicas) {
    return fmt::format("waits: needs at least {} replicas, but no job gets more than {}", job.min_replicas,
                       kMaxReplicasPerJob);
  }
  if (replicas <= 0) {
    return fmt::format("waits: needs at least {}, but its maximum is {}",
                       counted(std::max(job.min_replicas, 1), "replica"), job.max_replicas);
  }
  const int room = empty.room(job.resources);
  if (room >= replicas) return "waits until " + counted(replicas, "replica") + (replicas == 1 ? " fits" : " fit");
  return fmt::format("waits: needs {}, but the nodes can hold only {} in total", counted(replicas, "replica"), room);
}

}  // namespace adaptdl::sched
