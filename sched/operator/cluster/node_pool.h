// Decides on the size of a pool of nodes that a cluster autoscaler adds and removes.
//
// The scheduling policy chooses the number of nodes by their utility (policy/search/cluster_size.h). Nodes outside the
// pool are treated as nodes that cannot be removed. It is assumed that all jobs that may use the pool can use all of
// these nodes, and that all added nodes are equal.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/nodes/node_facts.h"
#include "operator/nodes/node_price.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

struct AllocatorCluster;

struct NodePool {
  nlohmann::json pod;  // a pod whose node selector, affinity and tolerations determine the nodes of the pool
  int min_nodes = 0, max_nodes = 0;
  std::optional<int> last_desired;  // the last decision, which is kept while its utility is within the range
  // The resources that jobs can use on a new node; if empty, the resources of the pool's largest node.
  Resources node_resources;
  // Limit on the total price of the pool's nodes. If it is set and the price of a new node is 0, no node is added.
  std::optional<double> max_cost_per_hour;
  std::vector<NodePrice> prices;
};

struct PoolDecision {
  int nodes = 0;          // nodes of the pool that are ready and not about to be removed
  int desired_nodes = 0;  // from min_nodes to max_nodes; fewer if max_cost_per_hour is too low
  std::optional<double> utility;
  std::optional<NodeFacts> new_node;  // expected properties of an added node; empty if not known
  int addable_nodes = 0;              // maximum number of nodes that could be added
  // Names of the nodes that no job should use, so that they can be removed (`surplus`), and of the nodes that are
  // cordoned or about to be removed (`closed`).
  std::set<std::string> surplus, closed;
  std::string reason;  // one clause
};

// Returns, for each node, the resources that are available to jobs because no other pods hold them.
std::map<std::string, Resources> resources_for_jobs(const AllocatorCluster& cluster);

// Decides on the size of the pool. REQUIRES policy.chooses_size().
PoolDecision size_pool(const NodePool& pool, const AllocatorCluster& cluster, const Policy& policy);

}  // namespace adaptdl::sched
