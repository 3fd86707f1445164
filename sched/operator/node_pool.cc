#include "operator/node_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "kube/json_fields.h"
#include "operator/allocator.h"
#include "policy/wording.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

constexpr std::int64_t kPodsPerNode = 110;  // the default of kubelets

std::int64_t gpus_of(const NodeFacts& node) {
  return std::accumulate(
      node.allocatable.begin(), node.allocatable.end(), std::int64_t{0},
      [](std::int64_t sum, const auto& each) { return sum + (is_gpu(each.first) ? each.second : 0); });
}

std::int64_t cpus_of(const NodeFacts& node) {
  const auto found = node.allocatable.find("cpu");
  return found == node.allocatable.end() ? 0 : found->second;
}

// Returns what a node that is added to the pool is expected to be: like its largest node, with the resources that are
// configured. Empty if neither is known.
std::optional<NodeFacts> make_new_node(const NodePool& pool, const std::vector<NodeFacts>& nodes) {
  const NodeFacts* largest = nullptr;
  for (const NodeFacts& node : nodes) {
    if (!could_run(pool.pod, node)) continue;
    const auto size = [](const NodeFacts& each) {
      return std::tuple(each.leaving.empty(), gpus_of(each), cpus_of(each));
    };
    if (largest == nullptr || size(node) > size(*largest)) largest = &node;
  }
  NodeFacts node;
  if (largest != nullptr) {
    node = *largest;
    node.labels.erase("kubernetes.io/hostname");
    if (!node.leaving.empty()) node.taints = json::array();
  } else if (!pool.node_resources.empty()) {
    node.labels = kube::field(pool.pod, {"spec", "nodeSelector"});
    if (!node.labels.is_object()) node.labels = json::object();
    node.taints = json::array();
  } else {
    return {};
  }
  if (!pool.node_resources.empty()) node.allocatable = pool.node_resources;
  node.allocatable.try_emplace("pods", kPodsPerNode);
  node.name = "new";
  node.ready = true;
  node.leaving.clear();
  return node;
}

// A node of the pool and what speaks for keeping it.
struct Member {
  const NodeFacts* node;
  bool pinned = false;  // a job that must not be moved uses it
  int replicas = 0;
};

bool is_pinned(const AllocatorJob& job) { return !job.info.preemptible && !job.current.empty(); }

// Returns the nodes of the pool that are ready and not about to be removed, those first that should be kept.
std::vector<Member> members_of(const NodePool& pool, const AllocatorCluster& cluster) {
  std::vector<Member> members;
  for (const NodeFacts& node : cluster.nodes) {
    if (may_run(pool.pod, node)) members.push_back({&node});
  }
  for (const AllocatorJob& job : cluster.jobs) {
    for (Member& member : members) {
      const auto count = static_cast<int>(std::ranges::count(job.current, member.node->name));
      member.replicas += count;
      member.pinned = member.pinned || (count > 0 && is_pinned(job));
    }
  }
  std::ranges::sort(members, {}, [](const Member& member) {
    return std::tuple(!member.pinned, -member.replicas, std::string_view(member.node->name));
  });
  return members;
}

// Returns how many nodes the limits allow, and why if that is not because of max_nodes.
std::pair<int, std::string> limit_of(const NodePool& pool, const std::vector<Member>& members,
                                     const std::optional<NodeFacts>& new_node) {
  const int now = static_cast<int>(members.size());
  if (!pool.max_cost_per_hour) return {pool.max_nodes, ""};
  double left = *pool.max_cost_per_hour;
  int limit = 0;
  for (const Member& member : members) {
    left -= price_of(*member.node, pool.prices);
    if (left < 0) break;
    ++limit;
  }
  const double price = new_node ? price_of(*new_node, pool.prices) : 0;
  if (limit == now && price > 0) limit += static_cast<int>(std::min(left / price, 1e6));
  if (limit >= pool.max_nodes) return {pool.max_nodes, ""};
  if (limit == now && price <= 0) return {limit, "the price of a new node is not known"};
  return {limit, fmt::format("more would cost more than {} per hour", *pool.max_cost_per_hour)};
}

bool runs_on(const AllocatorJob& job, const std::vector<Member>& members) {
  return std::ranges::any_of(members, [&](const Member& member) { return may_run(job.pod, *member.node); });
}

// The nodes of the pool and those outside it that its jobs may use, under names that sort as they should be kept.
Problem make_problem(const NodePool& pool, const AllocatorCluster& cluster, const std::vector<Member>& members,
                     const NodeFacts& new_node, int limit) {
  Problem problem;
  problem.now = cluster.now;
  std::vector<const AllocatorJob*> jobs;
  for (const AllocatorJob& job : cluster.jobs) {
    if (!job.held && (could_run(job.pod, new_node) || runs_on(job, members))) jobs.push_back(&job);
  }
  std::vector<const NodeFacts*> nodes;
  for (const NodeFacts& node : cluster.nodes) {
    const bool used = std::ranges::any_of(jobs, [&](const AllocatorJob* job) { return may_run(job->pod, node); });
    if (used && !may_run(pool.pod, node)) nodes.push_back(&node);
  }
  problem.min_nodes = static_cast<int>(nodes.size());
  problem.max_nodes = std::max(problem.min_nodes + limit, 1);
  for (const Member& member : members) nodes.push_back(member.node);
  const std::map<std::string, Resources> free = resources_for_jobs(cluster);
  std::map<std::string, std::string> names;
  for (const NodeFacts* node : nodes) {
    const std::string name = names[node->name] = fmt::format("{:09}", problem.nodes.size());
    problem.nodes.push_back({.name = name, .resources = free.at(node->name), .gpu_type = node->gpu_type});
  }
  problem.node_template = NodeInfo{.name = "new", .resources = new_node.allocatable, .gpu_type = new_node.gpu_type};
  for (const AllocatorJob* job : jobs) {
    problem.jobs.push_back(job->info);
    Allocation previous;
    for (const std::string& node : job->current) {
      if (const auto found = names.find(node); found != names.end()) previous.push_back(found->second);
    }
    if (!previous.empty() && previous.size() == job->current.size()) problem.previous[job->info.name] = previous;
  }
  return problem;
}

// Returns the last nodes, except those that are the only ones for a job.
std::set<std::string> surplus_of(const std::vector<Member>& members, int desired, const AllocatorCluster& cluster) {
  std::set<std::string> surplus;
  for (std::size_t i = static_cast<std::size_t>(desired); i < members.size(); ++i) {
    if (!members[i].pinned) surplus.insert(members[i].node->name);
  }
  for (const AllocatorJob& job : cluster.jobs) {
    const NodeFacts* first = nullptr;
    bool other = false;
    for (const NodeFacts& node : cluster.nodes) {
      if (!may_run(job.pod, node)) continue;
      const bool leaves = surplus.contains(node.name);
      other = other || !leaves;
      if (leaves && first == nullptr) first = &node;
    }
    if (first != nullptr && !other) surplus.erase(first->name);
  }
  return surplus;
}

std::string reason_of(const PoolDecision& decision, const std::string& limit) {
  std::string reason = decision.utility ? fmt::format("the utility of {} is {:.0f} %", counted(decision.nodes, "node"),
                                                      100 * *decision.utility)
                                        : "the resources of new nodes are not known yet";
  if (!limit.empty()) reason += "; " + limit;
  return reason;
}

}  // namespace

std::map<std::string, Resources> resources_for_jobs(const AllocatorCluster& cluster) {
  std::map<std::string, Resources> free;
  for (const NodeFacts& node : cluster.nodes) {
    Resources& resources = free[node.name] = node.allocatable;
    if (const auto used = cluster.used.find(node.name); used != cluster.used.end()) subtract(resources, used->second);
  }
  return free;
}

PoolDecision size_pool(const NodePool& pool, const AllocatorCluster& cluster, const Policy& policy) {
  const std::vector<Member> members = members_of(pool, cluster);
  PoolDecision result;
  result.nodes = static_cast<int>(members.size());
  result.new_node = make_new_node(pool, cluster.nodes);
  const auto [limit, why] = limit_of(pool, members, result.new_node);
  result.addable_nodes = std::max(limit - result.nodes, 0);
  int desired = 0;
  if (result.new_node) {
    const Problem problem = make_problem(pool, cluster, members, *result.new_node, limit);
    const Decision decision = policy.optimize(problem, nullptr);
    result.utility = decision.utility;
    desired = decision.desired_nodes - problem.min_nodes;
  } else {
    // Once there is a node, its resources are known.
    desired = std::ranges::any_of(cluster.jobs, [](const AllocatorJob& job) { return job.current.empty(); }) ? 1 : 0;
  }
  result.desired_nodes = std::clamp(desired, std::min(pool.min_nodes, limit), limit);
  result.surplus = surplus_of(members, std::min(result.desired_nodes, result.nodes), cluster);
  // Nodes that a job cannot do without are kept.
  result.desired_nodes =
      std::min(std::max(result.desired_nodes, result.nodes - static_cast<int>(result.surplus.size())), limit);
  result.reason = reason_of(result, result.desired_nodes == limit ? why : "");
  return result;
}

}  // namespace adaptdl::sched
