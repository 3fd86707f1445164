// The prices of nodes, and what the replicas of a job cost.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/node_facts.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// The price of nodes that have all these labels.
struct NodePrice {
  std::map<std::string, std::string> labels;
  double per_hour = 0;  // in any currency
};

// Parses a list of {"labels": {NAME: VALUE}, "perHour": NUMBER}. Throws UsageError, which begins with `what`.
std::vector<NodePrice> parse_node_prices(const nlohmann::json& list, const std::string& what);

// The price of a node by the first entry that fits. A node that no entry fits costs nothing.
double price_of(const NodeFacts& node, const std::vector<NodePrice>& prices);

struct UsageRate {
  double gpus = 0;  // of all resources for which is_gpu() is true
  // The job's share of the price of each of its nodes: the largest share of any resource. Empty without prices.
  std::optional<double> cost_per_hour;

  // Whether there is nothing to account for.
  bool empty() const { return gpus <= 0 && !cost_per_hour; }
};

// Returns what the replicas of a job hold, each of which requests `replica`. Nodes that are not in `nodes` cost
// nothing.
UsageRate usage_rate(const Resources& replica, const Allocation& allocation,
                     const std::map<std::string, NodeFacts>& nodes, const std::vector<NodePrice>& prices);

}  // namespace adaptdl::sched
