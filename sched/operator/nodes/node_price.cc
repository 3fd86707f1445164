#include "operator/nodes/node_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

NodePrice parse_node_price(const json& entry, const std::string& what) {
  NodePrice price;
  const json &labels = kube::field(entry, {"labels"}), &per_hour = kube::field(entry, {"perHour"});
  const bool valid = labels.is_object() && per_hour.is_number() && entry.size() == 2;
  if (!valid) throw UsageError(fmt::format("{}: expected {{labels: {{NAME: VALUE}}, perHour: NUMBER}}", what));
  for (const auto& [name, value] : labels.items()) {
    if (!value.is_string()) throw UsageError(fmt::format("{}: the value of label '{}' must be a string", what, name));
    price.labels[name] = value.get<std::string>();
  }
  price.per_hour = per_hour.get<double>();
  if (!(price.per_hour >= 0) || !std::isfinite(price.per_hour))
    throw UsageError(fmt::format("{}: perHour must be at least 0", what));
  return price;
}

}  // namespace

std::vector<NodePrice> parse_node_prices(const json& list, const std::string& what) {
  if (!list.is_array()) throw UsageError(fmt::format("{}: expected a list", what));
  std::vector<NodePrice> prices;
  for (const json& entry : list)
    prices.push_back(parse_node_price(entry, fmt::format("{}: entry {}", what, prices.size() + 1)));
  return prices;
}

double price_of(const NodeFacts& node, const std::vector<NodePrice>& prices) {
  for (const NodePrice& price : prices) {
    const bool fits = std::ranges::all_of(price.labels, [&](const auto& label) {
      const auto found = node.labels.find(label.first);
      return found != node.labels.end() && *found == label.second;
    });
    if (fits) return price.per_hour;
  }
  return 0;
}

UsageRate usage_rate(const Resources& replica, const Allocation& allocation,
                     const std::map<std::string, NodeFacts>& nodes, const std::vector<NodePrice>& prices) {
  UsageRate rate;
  if (!prices.empty()) rate.cost_per_hour = 0;
  for (const auto& [resource, amount] : replica) {
    if (is_gpu(resource)) rate.gpus += static_cast<double>(amount) * static_cast<double>(allocation.size());
  }
  std::map<std::string, int> replicas;
  for (const std::string& name : allocation) ++replicas[name];
  for (const auto& [name, count] : replicas) {
    const auto node = nodes.find(name);
    if (node == nodes.end() || prices.empty()) continue;
    double share = 0;
    for (const auto& [resource, amount] : replica) {
      const auto there = node->second.allocatable.find(resource);
      if (there == node->second.allocatable.end() || there->second <= 0) continue;
      share = std::max(share, static_cast<double>(amount) * count / static_cast<double>(there->second));
    }
    *rate.cost_per_hour += price_of(node->second, prices) * std::min(share, 1.0);
  }
  return rate;
}

}  // namespace adaptdl::sched
