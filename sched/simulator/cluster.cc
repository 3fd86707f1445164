#include "simulator/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "adaptdl/error.h"
#include "base/counted.h"

namespace adaptdl::sched {

Cluster::Cluster(const SimulationOptions& options) : autoscale_(options.autoscale) {
  int count = 0;
  for (const NodeGroup& group : options.groups) count += group.nodes;
  if (autoscale_) count = autoscale_->max_nodes;
  // All names have the same length, so that sorting by name preserves the order of the nodes.
  const std::size_t digits = std::max<std::size_t>(fmt::format("{}", std::max(count - 1, 0)).size(), 2);
  for (const NodeGroup& group : options.groups) {
    for (int i = 0; i < (autoscale_ ? count : group.nodes); ++i) {
      NodeInfo node{fmt::format("node-{:0{}}", all_.size(), digits), {{kGpu, group.gpus}}, false, group.gpu_type};
      index_.emplace(node.name, all_.size());
      all_.push_back(std::move(node));
      prices_.push_back(group.price);
      gpus_ += group.gpus;
    }
    if (group.speed != 1) gpu_speed_[group.gpu_type] = group.speed;
  }
  const std::size_t now = autoscale_ ? static_cast<std::size_t>(autoscale_->min_nodes) : all_.size();
  nodes_.assign(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(now));
}

std::optional<NodeInfo> Cluster::node_template() const {
  if (!autoscale_) return std::nullopt;
  NodeInfo node = all_.front();
  node.name = "new";
  return node;
}

std::vector<int> Cluster::placement(const Allocation& allocation) {
  std::vector<int> replicas;
  for (std::size_t i = 0; i < allocation.size(); ++i) {
    if (i == 0 || allocation[i] != allocation[i - 1]) {
      replicas.push_back(1);
    } else {
      ++replicas.back();
    }
  }
  return replicas;
}

double Cluster::speed(const Allocation& allocation) const {
  double slowest = std::numeric_limits<double>::infinity();
  for (const std::string& name : allocation) {
    const auto speed = gpu_speed_.find(all_[index_.at(name)].gpu_type);
    slowest = std::min(slowest, speed == gpu_speed_.end() ? 1 : speed->second);
  }
  return allocation.empty() ? 1 : slowest;
}

double Cluster::price(const Allocation& allocation) const {
  double sum = 0;
  for (const std::string& name : allocation) {
    const std::size_t node = index_.at(name);
    sum += prices_[node] / static_cast<double>(all_[node].resources.at(kGpu));
  }
  return sum;
}

double Cluster::price() const {
  return std::accumulate(prices_.begin(), prices_.begin() + static_cast<std::ptrdiff_t>(nodes_.size()), 0.0);
}

void Cluster::check(const Allocations& allocations, const std::string& policy) const {
  std::map<std::string, std::int64_t> used;
  for (const auto& [job, allocation] : allocations) {
    for (const std::string& node : allocation) ++used[node];
  }
  for (const auto& [name, count] : used) {
    const auto node = index_.find(name);
    const std::int64_t gpus =
        node != index_.end() && node->second < nodes_.size() ? all_[node->second].resources.at(kGpu) : 0;
    if (count > gpus) {
      throw Error(fmt::format("policy '{}' places {} on node '{}', which has {}; report this as a bug", policy,
                              counted(count, "replica"), name, counted(gpus, "GPU")));
    }
  }
}

std::set<std::string> Cluster::contended(const Allocations& allocations) {
  std::map<std::string, int> distributed;
  for (const auto& [job, allocation] : allocations) {
    const std::set<std::string> nodes(allocation.begin(), allocation.end());
    if (nodes.size() < 2) continue;
    for (const std::string& node : nodes) ++distributed[node];
  }
  std::set<std::string> result;
  for (const auto& [node, jobs] : distributed) {
    if (jobs > 1) result.insert(node);
  }
  return result;
}

void Cluster::resize(int desired_nodes, const Allocations& allocations) {
  if (!autoscale_) return;
  const auto desired =
      static_cast<std::size_t>(std::clamp(desired_nodes, autoscale_->min_nodes, autoscale_->max_nodes));
  while (nodes_.size() < desired) nodes_.push_back(all_[nodes_.size()]);
  const auto idle = [&](const std::string& node) {
    return std::ranges::none_of(
        allocations, [&](const auto& each) { return std::ranges::find(each.second, node) != each.second.end(); });
  };
  while (nodes_.size() > desired && idle(nodes_.back().name)) nodes_.pop_back();
}

}  // namespace adaptdl::sched
