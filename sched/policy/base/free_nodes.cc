#include "policy/base/free_nodes.h"

#include <algorithm>
#include <limits>
#include <map>

namespace adaptdl::sched {
namespace {

bool asks_for_something(const Resources& demand) {
  return std::ranges::any_of(demand, [](const auto& each) { return each.second > 0; });
}

}  // namespace

FreeNodes::FreeNodes(const std::vector<NodeInfo>& nodes) {
  for (const bool preemptible : {false, true}) {
    for (const NodeInfo& node : nodes) {
      if (node.preemptible != preemptible) continue;
      index_.emplace(node.name, nodes_.size());
      nodes_.push_back({node.name, node.resources});
    }
  }
}

std::int64_t FreeNodes::room(const Node& node, const Resources& demand) {
  std::int64_t replicas = std::numeric_limits<int>::max();
  for (const auto& [type, amount] : demand) {
    if (amount <= 0) continue;
    const auto free = node.free.find(type);
    if (free == node.free.end() || free->second <= 0) return 0;
    replicas = std::min(replicas, free->second / amount);
  }
  return replicas;
}

void FreeNodes::subtract(Node& node, const Resources& demand, std::int64_t replicas) {
  for (const auto& [type, amount] : demand) {
    if (amount > 0) node.free[type] -= amount * replicas;
  }
}

int FreeNodes::room(const Resources& demand) const {
  if (!asks_for_something(demand)) return 0;
  std::int64_t replicas = 0;
  for (const Node& node : nodes_) replicas += room(node, demand);
  return static_cast<int>(std::min<std::int64_t>(replicas, std::numeric_limits<int>::max()));
}

bool FreeNodes::take(const Allocation& allocation, const Resources& demand) {
  if (!asks_for_something(demand)) return allocation.empty();
  std::map<std::size_t, std::int64_t> counts;
  for (const std::string& name : allocation) {
    const auto node = index_.find(name);
    if (node == index_.end()) return false;
    ++counts[node->second];
  }
  for (const auto& [node, count] : counts) {
    if (room(nodes_[node], demand) < count) return false;
  }
  for (const auto& [node, count] : counts) subtract(nodes_[node], demand, count);
  return true;
}

Allocation FreeNodes::place(int replicas, const Resources& demand) {
  if (replicas <= 0 || room(demand) < replicas) return {};
  Allocation allocation;
  while (static_cast<int>(allocation.size()) < replicas) {
    const auto emptiest = std::ranges::max_element(nodes_, {}, [&](const Node& node) { return room(node, demand); });
    const auto count = std::min<std::int64_t>(room(*emptiest, demand), replicas - static_cast<int>(allocation.size()));
    subtract(*emptiest, demand, count);
    allocation.insert(allocation.end(), static_cast<std::size_t>(count), emptiest->name);
  }
  return allocation;
}

}  // namespace adaptdl::sched
