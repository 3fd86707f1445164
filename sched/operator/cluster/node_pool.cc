#include "operator/cluster/node_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "kube/api/json_fields.h"
#include "operator/cluster/allocator.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

constexpr std::int64_t kPodsPerNode = 110;  // the default of kubelets
// How long a new node may lack resources: a node may be ready before its device plugins, which add resources.
constexpr double kSetUpTime = 900;  // seconds

constexpr double kRounding = 1e-9;  // tolerance in comparisons of prices

using NodeResources = std::map<std::string, Resources>;  // by node

std::int64_t gpus_of(const NodeFacts& node) {
  return std::accumulate(
      node.allocatable.begin(), node.allocatable.end(), std::int64_t{0},
      [](std::int64_t sum, const auto& each) { return sum + (is_gpu(each.first) ? each.second : 0); });
}

std::int64_t cpus_of(const NodeFacts& node) {
  const auto found = node.allocatable.find("cpu");
  return found == node.allocatable.end() ? 0 : found->second;
}

// Returns the taints that a placeholder names in its tolerations.
json tolerated_taints(const json& pod) {
  json taints = json::array();
  for (const json& toleration : kube::array_field(pod, {"spec", "tolerations"})) {
    const std::string key = kube::text_field(toleration, {"key"}), effect = kube::text_field(toleration, {"effect"});
    if (key.empty() || key.starts_with("node.kubernetes.io/") || effect == "PreferNoSchedule") continue;
    json& taint = taints.emplace_back(json{{"key", key}, {"effect", effect.empty() ? "NoSchedule" : effect}});
    if (const std::string value = kube::text_field(toleration, {"value"}); !value.empty()) taint["value"] = value;
  }
  return taints;
}

// Returns the resources that other pods use on a node, except pods that will end soon.
Resources lasting_use(const AllocatorCluster& cluster, const std::string& node) {
  const auto found = cluster.used.find(node);
  Resources used = found == cluster.used.end() ? Resources() : found->second;
  if (const auto soon = cluster.released_soon.find(node); soon != cluster.released_soon.end())
    subtract(used, soon->second);
  return used;
}

// Subtracts the resources that other pods, such as those of DaemonSets, use on every node of the pool.
void subtract_used(const NodePool& pool, const AllocatorCluster& cluster, Resources& resources) {
  std::optional<Resources> smallest;
  for (const NodeFacts& node : cluster.nodes) {
    if (!may_run(pool.pod, node)) continue;
    const Resources used = lasting_use(cluster, node.name);
    if (!smallest) smallest = used;
    for (auto& [type, amount] : *smallest) {
      const auto here = used.find(type);
      amount = std::min(amount, here == used.end() ? 0 : here->second);
    }
  }
  if (smallest) subtract(resources, *smallest);
}

// Returns the expected properties of a node that is added to the pool: the properties of the pool's largest node, with
// the configured resources. If there are no nodes and no configured resources, the new node has no resources.
NodeFacts make_new_node(const NodePool& pool, const AllocatorCluster& cluster) {
  const NodeFacts* largest = nullptr;
  for (const NodeFacts& node : cluster.nodes) {
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
    subtract_used(pool, cluster, node.allocatable);
  } else {
    node.labels = kube::field(pool.pod, {"spec", "nodeSelector"});
    if (!node.labels.is_object()) node.labels = json::object();
    node.taints = tolerated_taints(pool.pod);
  }
  if (!pool.node_resources.empty()) node.allocatable = pool.node_resources;
  if (!node.allocatable.empty()) node.allocatable.try_emplace("pods", kPodsPerNode);
  node.name = "new";
  node.ready = true;
  node.leaving.clear();
  return node;
}

// A node of the pool, and the reasons to keep it.
struct Member {
  const NodeFacts* node;
  bool pinned = false;  // a job that must not be moved uses it
  int replicas = 0;
};

// Returns the nodes of the pool that are ready and not about to be removed, in the order in which they should be kept.
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

// Returns how many nodes the limits allow, and the reason, which is empty if the limit is max_nodes.
std::pair<int, std::string> limit_of(const NodePool& pool, const std::vector<Member>& members,
                                     const NodeFacts& new_node) {
  const int now = static_cast<int>(members.size());
  if (!pool.max_cost_per_hour) return {pool.max_nodes, ""};
  double left = *pool.max_cost_per_hour;
  int limit = 0;
  for (const Member& member : members) {
    left -= price_of(*member.node, pool.prices);
    if (left < -kRounding) break;
    ++limit;
  }
  const double price = price_of(new_node, pool.prices);
  if (limit == now && price > 0) limit += static_cast<int>(std::min(left / price + kRounding, 1e6));
  if (limit >= pool.max_nodes) return {pool.max_nodes, ""};
  if (limit == now && price <= 0) return {limit, "the price of a new node is not known"};
  return {limit, fmt::format("more nodes would cost more than {} per hour", *pool.max_cost_per_hour)};
}

// Returns whether the job could use new nodes. If a replica fits on none of the nodes of the pool that the job may use,
// even without other jobs, it would not fit on new nodes either, regardless of the resources that new nodes are
// expected to have.
bool can_use(const AllocatorJob& job, const std::vector<Member>& members, const NodeResources& free,
             const NodeFacts& new_node) {
  bool any = false, fits = false;
  for (const Member& member : members) {
    if (!may_run(job.pod, *member.node)) continue;
    any = true;
    fits = fits || room_for(job.info.resources, free.at(member.node->name)) > 0;
  }
  return any ? fits : could_run(job.pod, new_node) && room_for(job.info.resources, new_node.allocatable) > 0;
}

bool lacks(const NodeFacts& node, const std::string& type) {
  const auto found = node.allocatable.find(type);
  return found == node.allocatable.end() || found->second == 0;
}

// Adds the resources that nodes still lack because they have just been added.
void complete(const std::vector<Member>& members, const NodeFacts& new_node, double now, NodeResources& free) {
  for (const Member& member : members) {
    if (now - member.node->created > kSetUpTime) continue;
    for (const auto& [type, amount] : new_node.allocatable) {
      if (lacks(*member.node, type)) free[member.node->name][type] = amount;
    }
  }
}

// Returns the problem of placing the pool's jobs on its nodes and on the nodes outside the pool that these jobs may
// use. The names of the nodes are in the order in which the nodes should be kept.
Problem make_problem(const NodePool& pool, const AllocatorCluster& cluster, const std::vector<Member>& members,
                     const NodeFacts& new_node, int limit) {
  Problem problem;
  problem.now = cluster.now;
  NodeResources free;
  for (const NodeFacts& node : cluster.nodes)
    subtract(free[node.name] = node.allocatable, lasting_use(cluster, node.name));
  complete(members, new_node, cluster.now, free);
  std::vector<const AllocatorJob*> jobs, others;
  for (const AllocatorJob& job : cluster.jobs) {
    const bool stays = is_pinned(job) && std::ranges::any_of(job.current, [&](const std::string& name) {
                         const auto node = std::ranges::find(cluster.nodes, name, &NodeFacts::name);
                         return node == cluster.nodes.end() || !may_run(job.pod, *node);
                       });
    (!stays && can_use(job, members, free, new_node) ? jobs : others).push_back(&job);
  }
  for (const AllocatorJob* job : others) subtract_job(*job, free);
  std::vector<const NodeFacts*> nodes;
  for (const NodeFacts& node : cluster.nodes) {
    const bool used = std::ranges::any_of(jobs, [&](const AllocatorJob* job) { return may_run(job->pod, node); });
    if (used && !may_run(pool.pod, node)) nodes.push_back(&node);
  }
  problem.min_nodes = static_cast<int>(nodes.size());
  problem.max_nodes = std::max(problem.min_nodes + limit, 1);
  if (pool.last_desired) problem.last_desired = problem.min_nodes + std::clamp(*pool.last_desired, 0, limit);
  for (const Member& member : members) nodes.push_back(member.node);
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

// Returns the nodes after the first `desired`, except those that pinned jobs use or that jobs need for their
// min_replicas.
std::set<std::string> surplus_of(const std::vector<Member>& members, int desired, const AllocatorCluster& cluster) {
  std::set<std::string> surplus;
  for (std::size_t i = static_cast<std::size_t>(desired); i < members.size(); ++i) {
    if (!members[i].pinned) surplus.insert(members[i].node->name);
  }
  NodeResources free = resources_for_jobs(cluster);
  for (const AllocatorJob& job : cluster.jobs) {
    if (is_pinned(job)) subtract_job(job, free);
  }
  for (const AllocatorJob& job : cluster.jobs) {
    if (is_pinned(job)) continue;
    std::int64_t left = std::max(job.info.min_replicas, 1);
    for (const NodeFacts& node : cluster.nodes) {
      if (!surplus.contains(node.name) && may_run(job.pod, node)) left -= room_for(job.info.resources, free[node.name]);
    }
    for (const Member& member : members) {
      if (left <= 0) break;
      const std::string& name = member.node->name;
      const std::int64_t room = may_run(job.pod, *member.node) ? room_for(job.info.resources, free[name]) : 0;
      if (room > 0 && surplus.erase(name) > 0) left -= room;
    }
  }
  return surplus;
}

std::string reason_of(const PoolDecision& decision, bool needed, const std::string& limit) {
  std::string reason;
  if (!decision.utility)
    reason = "the resources of new nodes are not known yet";
  else if (needed)
    reason = "jobs are waiting for them";
  else
    reason = fmt::format("the utility of the nodes is {:.0f}%", 100 * *decision.utility);
  if (!limit.empty()) reason += "; " + limit;
  return reason;
}

// Returns whether the job is waiting and could run on a new node that had enough resources.
bool waits(const AllocatorJob& job, const NodeFacts& new_node) {
  return !job.held && job.current.empty() && could_run(job.pod, new_node);
}

// Returns false if a waiting job requests a resource that no node offers, but all nodes of the pool are so new that the
// resource may still be added to them.
bool is_set_up(const NodePool& pool, const std::vector<Member>& members, const AllocatorCluster& cluster,
               const NodeFacts& new_node) {
  const auto is_new = [&](const Member& member) { return cluster.now - member.node->created <= kSetUpTime; };
  if (members.empty() || !pool.node_resources.empty() || !std::ranges::all_of(members, is_new)) return true;
  return std::ranges::none_of(cluster.jobs, [&](const AllocatorJob& job) {
    return waits(job, new_node) && std::ranges::any_of(job.info.resources, [&](const auto& requested) {
             return requested.second > 0 && std::ranges::all_of(cluster.nodes, [&](const NodeFacts& node) {
                      return lacks(node, requested.first);
                    });
           });
  });
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
  for (const NodeFacts& node : cluster.nodes) {
    if (node.ready && could_run(pool.pod, node) && !may_run(pool.pod, node)) result.closed.insert(node.name);
  }
  const NodeFacts new_node = make_new_node(pool, cluster);
  if (!new_node.allocatable.empty()) result.new_node = new_node;
  const auto [limit, why] = limit_of(pool, members, new_node);
  result.addable_nodes = std::max(limit - result.nodes, 0);
  int desired = 0;
  bool needed = false;
  if (result.new_node) {
    const Problem problem = make_problem(pool, cluster, members, new_node, limit);
    const Decision decision = policy.optimize(problem, nullptr);
    result.utility = decision.utility;
    desired = decision.desired_nodes - problem.min_nodes;
    needed = desired > result.nodes && decision.for_waiting_jobs;
  } else {
    // One node is requested, because the resources of new nodes become known only when a node has been added.
    desired = std::ranges::any_of(cluster.jobs, [&](const AllocatorJob& job) { return waits(job, new_node); }) ? 1 : 0;
  }
  if (!is_set_up(pool, members, cluster, new_node)) {
    result.new_node.reset();
    if (desired <= result.nodes) {
      desired = result.nodes;
      result.utility.reset();
    }
  }
  result.desired_nodes = std::clamp(desired, std::min(pool.min_nodes, limit), limit);
  result.surplus = surplus_of(members, std::min(result.desired_nodes, result.nodes), cluster);
  // Nodes that a job needs are kept.
  result.desired_nodes =
      std::min(std::max(result.desired_nodes, result.nodes - static_cast<int>(result.surplus.size())), limit);
  result.reason = reason_of(result, needed, result.desired_nodes == limit ? why : "");
  return result;
}

}  // namespace adaptdl::sched
