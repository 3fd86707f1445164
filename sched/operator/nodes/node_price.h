// Computes the costs of a job's replicas from node prices.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/nodes/node_facts.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

// The price of nodes that have all these labels.
struct NodePrice {
  std::map<std::string, std::string> labels;
  double per_hour = 0;  // in any currency
};

// Parses a list of {"labels": {NAME: VALUE}, "perHour": NUMBER}. Throws UsageError, whose message begins with `what`.
std::vector<NodePrice> parse_node_prices(const nlohmann::json& list, const std::string& what);

// Returns the price of a node per hour according to the first entry that matches, or 0 if no entry matches.
double price_of(const NodeFacts& node, const std::vector<NodePrice>& prices);

struct UsageRate {
  double gpus = 0;  // amount of all resources for which is_gpu() is true
  // The sum of the job's shares of its nodes' prices. The job's share of a node is its largest share of any of the
  // node's resources. Empty without prices.
  std::optional<double> cost_per_hour;

  // Returns whether there is nothing to account for.
  bool empty() const { return gpus <= 0 && !cost_per_hour; }
};

// Returns the usage rate of a job's replicas if each of them requests `replica`. Nodes that are not in `nodes` cost
// nothing.
UsageRate usage_rate(const Resources& replica, const Allocation& allocation,
                     const std::map<std::string, NodeFacts>& nodes, const std::vector<NodePrice>& prices);

}  // namespace adaptdl::sched
