#include "operator/cluster/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "base/counted.h"
#include "kube/api/json_fields.h"
#include "policy/base/speedup.h"

namespace adaptdl::sched {
namespace {

using Free = std::map<std::string, Resources>;  // by node

std::map<std::string, int> counts(const Allocation& allocation) {
  std::map<std::string, int> counted;
  for (const std::string& node : allocation) ++counted[node];
  return counted;
}

void take(Free& free, const std::map<std::string, int>& replicas, const Resources& demand) {
  for (const auto& [node, count] : replicas) {
    if (const auto found = free.find(node); found != free.end()) subtract(found->second, demand, count);
  }
}

NodeInfo to_info(const NodeFacts& node, const Resources& resources) {
  return {.name = node.name, .resources = resources, .gpu_type = node.gpu_type};
}

// Finds the nodes on which a predicate permits the pods of a job. The results are cached, because most jobs have the
// same node selector, affinity and tolerations as other jobs.
class NodeFilter {
 public:
  using Nodes = std::vector<const NodeFacts*>;
  using Predicate = bool (*)(const nlohmann::json& pod, const NodeFacts& node);  // may_run or could_run

  // `nodes` must outlive the filter.
  NodeFilter(const std::vector<NodeFacts>& nodes, Predicate permits) : nodes_(nodes), permits_(permits) {}

  const Nodes& of(const AllocatorJob& job) {
    nlohmann::json needs = nlohmann::json::array();
    for (const char* part : {"nodeSelector", "affinity", "tolerations"})
      needs.push_back(kube::field(job.pod, {"spec", part}));
    const auto [found, added] = found_.try_emplace(std::move(needs));
    if (added) {
      for (const NodeFacts& node : nodes_) {
        if (permits_(job.pod, node)) found->second.push_back(&node);
      }
    }
    return found->second;
  }

 private:
  const std::vector<NodeFacts>& nodes_;
  const Predicate permits_;
  std::map<nlohmann::json, Nodes> found_;  // by the parts of a pod that may_run() and could_run() read
};

// Returns the nodes that the job could use if the nodes were ready and not cordoned, including nodes that could be
// added.
std::vector<const NodeFacts*> possible_nodes(const AllocatorJob& job, NodeFilter& could,
                                             const std::optional<PoolDecision>& pool) {
  std::vector<const NodeFacts*> possible = could.of(job);
  if (pool && pool->new_node && could_run(job.pod, *pool->new_node))
    possible.insert(possible.end(), static_cast<std::size_t>(pool->addable_nodes), &*pool->new_node);
  return possible;
}

// Returns the number of requested nodes that the job could use.
int requested_nodes(const AllocatorJob& job, const std::optional<PoolDecision>& pool) {
  const bool fits = pool && (!pool->new_node || could_run(job.pod, *pool->new_node));
  return fits ? std::max(pool->desired_nodes - pool->nodes, 0) : 0;
}

// Returns whether the nodes could hold the job's minimum number of replicas if the nodes were empty.
bool placeable(const JobInfo& job, const std::vector<const NodeFacts*>& nodes) {
  const std::int64_t needed = std::max(job.min_replicas, 1);
  std::int64_t room = 0;
  for (const NodeFacts* node : nodes) {
    room += std::min(needed, room_for(job.resources, node->allocatable));
  }
  return room >= needed;
}

// Returns whether the job is running and must not be moved. Such jobs are hidden from policies, which would move them
// off nodes that are cordoned or not ready, or that temporarily lack a resource.
bool stays(const AllocatorJob& job) { return is_pinned(job) && !job.live.empty(); }

// A group of jobs that may use the same nodes.
struct JobClass {
  std::vector<const NodeFacts*> nodes;
  std::vector<const AllocatorJob*> jobs;
};

std::vector<JobClass> classes_of(const AllocatorCluster& cluster, const std::set<std::string>& surplus) {
  NodeFilter usable(cluster.nodes, may_run);
  std::map<std::vector<const NodeFacts*>, JobClass> by_nodes;
  for (const AllocatorJob& job : cluster.jobs) {
    if (job.held || stays(job)) continue;
    std::vector<const NodeFacts*> nodes = usable.of(job);
    std::erase_if(nodes, [&](const NodeFacts* node) { return surplus.contains(node->name); });
    JobClass& same = by_nodes[nodes];
    same.nodes = std::move(nodes);
    same.jobs.push_back(&job);
  }
  std::vector<JobClass> classes;
  for (auto& [nodes, each] : by_nodes) classes.push_back(std::move(each));
  std::ranges::stable_sort(classes, {}, [](const JobClass& each) { return each.nodes.size(); });
  return classes;
}

// Returns the nodes that a job keeps while nodes are allocated to the jobs of a class with fewer nodes: its whole
// allocation if it is pinned, otherwise the nodes of its minimum number of replicas.
Allocation kept(const AllocatorJob& job) {
  if (is_pinned(job)) return job.current;
  const auto count = std::min(job.current.size(), static_cast<std::size_t>(std::max(job.info.min_replicas, 1)));
  return {job.current.begin(), job.current.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::string key_of(const std::vector<const NodeFacts*>& nodes) {
  std::string key;
  for (const NodeFacts* node : nodes) key += node->name + '\n';
  return key;
}

std::string why_no_node(const AllocatorCluster& cluster) {
  if (cluster.nodes.empty()) return "waits: the cluster has no nodes";
  const bool ready = std::ranges::any_of(cluster.nodes, &NodeFacts::ready);
  if (!ready) return "waits: no node is ready";
  return fmt::format("waits: no node matches its node selector, affinity and tolerations ({} in the cluster)",
                     counted(cluster.nodes.size(), "node"));
}

// Returns the first of the job's nodes that is about to be removed, or null.
const NodeFacts* leaving_node(const AllocatorJob& job, const std::vector<NodeFacts>& nodes) {
  for (const NodeFacts& node : nodes) {
    if (!node.leaving.empty() && std::ranges::find(job.current, node.name) != job.current.end()) return &node;
  }
  return nullptr;
}

// Returns the free resources without those that jobs of other classes keep.
Free without_kept(Free free, std::span<const JobClass> classes) {
  for (const JobClass& each : classes) {
    for (const AllocatorJob* job : each.jobs) take(free, counts(kept(*job)), job->info.resources);
  }
  return free;
}

Problem problem_of(const JobClass& each, const Free& available, double now) {
  Problem problem;
  problem.now = now;
  for (const AllocatorJob* job : each.jobs) {
    problem.jobs.push_back(job->info);
    if (!job->current.empty()) problem.previous[job->info.name] = job->current;
  }
  for (const NodeFacts* node : each.nodes) {
    const auto found = available.find(node->name);
    problem.nodes.push_back(to_info(*node, found == available.end() ? Resources() : found->second));
  }
  return problem;
}

// Adds to decisions what the policy does not know: whether nodes that are not ready or could be added would suffice,
// and which nodes are about to be removed.
class Explanations {
 public:
  // The arguments must outlive the object.
  Explanations(const AllocatorCluster& cluster, const std::optional<PoolDecision>& pool)
      : cluster_(cluster), pool_(pool), could_(cluster.nodes, could_run) {}

  void complete(const AllocatorJob& job, const JobClass& each, JobDecision& decision) {
    if (decision.nodes.empty()) {
      decision.placeable = cluster_.nodes.empty() || (pool_ && !pool_->new_node) ||
                           placeable(job.info, possible_nodes(job, could_, pool_));
      if (each.nodes.empty()) decision.reason = why_no_node(cluster_);
      if (const int requested = requested_nodes(job, pool_); requested > 0 && decision.placeable)
        decision.reason += fmt::format("; {} requested", counted(requested, "new node"));
    }
    if (const NodeFacts* node = leaving_node(job, cluster_.nodes); node != nullptr)
      decision.reason += fmt::format("; node '{}' is about to be removed ({})", node->name, node->leaving);
  }

 private:
  const AllocatorCluster& cluster_;
  const std::optional<PoolDecision>& pool_;
  NodeFilter could_;
};

}  // namespace

bool is_pinned(const AllocatorJob& job) { return !job.info.preemptible && !job.current.empty(); }

void subtract_job(const AllocatorJob& job, Free& free) {
  // A pod holds its resources until it ends, even if the job has a new allocation.
  std::map<std::string, int> held = counts(job.current);
  for (const auto& [node, count] : job.live) held[node] = std::max(held[node], count);
  take(free, held, job.info.resources);
}

std::int64_t room_for(const Resources& replica, const Resources& free) {
  std::int64_t room = std::numeric_limits<std::int32_t>::max();
  for (const auto& [type, amount] : replica) {
    if (amount <= 0) continue;
    const auto found = free.find(type);
    room = std::min(room, found == free.end() ? 0 : found->second / amount);
  }
  return room;
}

std::size_t count_nodes(const Allocation& allocation) {
  return std::set<std::string>(allocation.begin(), allocation.end()).size();
}

std::optional<double> goodput_of(const AllocatorJob& job) {
  if (job.info.speedup == nullptr) return {};
  return job.info.speedup->goodput(static_cast<int>(count_nodes(job.current)), static_cast<int>(job.current.size()));
}

bool Allocator::must_move_job(const AllocatorCluster& cluster) {
  return std::ranges::any_of(cluster.jobs, [&](const AllocatorJob& job) {
    return !job.held && !stays(job) && leaving_node(job, cluster.nodes) != nullptr;
  });
}

CycleDecisions Allocator::cycle(const AllocatorCluster& cluster) {
  CycleDecisions result;
  if (cluster.pool) result.pool = size_pool(*cluster.pool, cluster, *policy_);
  // `free` contains the resources that pinned running jobs, and the classes decided so far, leave to the other classes.
  Free free = resources_for_jobs(cluster);
  for (const AllocatorJob& job : cluster.jobs) {
    if (stays(job)) take(free, counts(job.current), job.info.resources);
  }
  const auto classes = classes_of(cluster, result.pool ? result.pool->surplus : std::set<std::string>());
  Explanations explanations(cluster, result.pool);
  std::map<std::string, std::shared_ptr<const PolicyState>> states;
  for (std::size_t index = 0; index < classes.size(); ++index) {
    const JobClass& each = classes[index];
    const std::string key = key_of(each.nodes);
    const std::span later = std::span(classes).subspan(index + 1);
    Decision decided = policy_->optimize(problem_of(each, without_kept(free, later), cluster.now), states_[key]);
    states[key] = decided.state;
    for (const AllocatorJob* job : each.jobs) {
      const std::string& name = job->info.name;
      JobDecision decision{.nodes = decided.allocations[name], .reason = decided.reasons[name], .uid = job->uid};
      take(free, counts(decision.nodes), job->info.resources);
      explanations.complete(*job, each, decision);
      result.jobs[name] = std::move(decision);
    }
  }
  states_ = std::move(states);
  return result;
}

JobDecisions Allocator::first_fit(const AllocatorCluster& cluster) {
  Free free = resources_for_jobs(cluster);
  for (const AllocatorJob& job : cluster.jobs) {
    subtract_job(job, free);
  }
  JobDecisions decisions;
  NodeFilter usable(cluster.nodes, may_run);
  std::vector<const AllocatorJob*> waiting;
  for (const AllocatorJob& job : cluster.jobs) {
    if (job.waits_for_first_fit && !job.held) waiting.push_back(&job);
  }
  std::ranges::stable_sort(waiting, {}, [](const AllocatorJob* job) { return job->info.creation_time; });
  for (const AllocatorJob* job : waiting) {
    std::vector<NodeInfo> nodes;
    for (const NodeFacts* node : usable.of(*job)) {
      NodeInfo& info = nodes.emplace_back(to_info(*node, free[node->name]));
      // Surplus nodes are marked preemptible so that they are used last.
      info.preemptible = cluster.surplus.contains(node->name);
    }
    const Allocation allocation = allocate_job(job->info, nodes);
    if (allocation.empty()) continue;
    take(free, counts(allocation), job->info.resources);
    decisions[job->info.name] = {
        .nodes = allocation,
        .reason = fmt::format("{} on 1 node: not measured yet", counted(allocation.size(), "replica")),
        .uid = job->uid};
  }
  return decisions;
}

}  // namespace adaptdl::sched
