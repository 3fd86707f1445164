// The nodes that a cluster autoscaler adds and removes, and how many of them the jobs should have.
//
// The scheduling policy chooses the number by the utility of the nodes (policy/cluster_size.h). Nodes outside the pool
// count as nodes that cannot be removed. All jobs that may use the pool are assumed to be able to use all of these
// nodes, and all nodes that are added to be equal.
//
// Threading: plain values and functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/node_facts.h"
#include "operator/node_price.h"
#include "policy/policy.h"

namespace adaptdl::sched {

struct AllocatorCluster;

struct NodePool {
  nlohmann::json pod;  // a pod whose node selector, affinity and tolerations determine the nodes of the pool
  int min_nodes = 0, max_nodes = 0;
  std::optional<int> last_desired;  // the last decision, which is kept if it still makes sense
  // What jobs can use of a new node; empty: as much as of the largest node of the pool.
  Resources node_resources;
  // Limit of the prices of all nodes of the pool. If the price of a new node is 0, no node is added.
  std::optional<double> max_cost_per_hour;
  std::vector<NodePrice> prices;
};

struct PoolDecision {
  int nodes = 0;          // that are in the pool, ready and not about to be removed
  int desired_nodes = 0;  // between min_nodes and max_nodes
  std::optional<double> utility;
  std::optional<NodeFacts> new_node;  // what an added node is expected to be, if that is known
  int addable_nodes = 0;              // number of nodes that could be added at most
  // Names of nodes that no job should use, so that they can be removed, and of those that are cordoned or about to be
  // removed.
  std::set<std::string> surplus, closed;
  std::string reason;  // one clause
};

// Returns the resources of each node that are available to jobs: those that no other pods hold.
std::map<std::string, Resources> resources_for_jobs(const AllocatorCluster& cluster);

// REQUIRES policy.chooses_size().
PoolDecision size_pool(const NodePool& pool, const AllocatorCluster& cluster, const Policy& policy);

}  // namespace adaptdl::sched
