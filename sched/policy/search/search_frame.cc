#include "policy/search/search_frame.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "policy/base/comparable.h"
#include "policy/search/search_state.h"

namespace adaptdl::sched {
namespace {

SearchJob make_job(const JobInfo& job, int max_replicas, const std::vector<std::string>& resources,
                   Placement previous) {
  SearchJob result;
  result.demand = amounts(job.resources, resources);
  const bool asks = std::ranges::any_of(result.demand, [](std::int64_t amount) { return amount > 0; });
  result.min_replicas = std::max(job.min_replicas, 0);
  result.max_replicas = asks ? std::max(std::min(job.max_replicas, std::max(max_replicas, result.min_replicas)), 0) : 0;
  if (result.min_replicas > result.max_replicas) result.max_replicas = 0;
  const int replicas = replica_count(previous);
  result.pinned = !job.preemptible && replicas > 0;
  if (result.pinned || (replicas >= result.min_replicas && replicas <= result.max_replicas))
    result.previous = std::move(previous);
  return result;
}

// If nodes no longer have the resources that pinned jobs hold, the jobs that were created first stay, and the others
// are unpinned.
void unpin_what_exceeds(const std::vector<JobInfo>& jobs, SearchProblem& problem) {
  std::vector<std::size_t> order;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    if (problem.jobs[j].pinned) order.push_back(j);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t j) { return comparable(jobs[j].creation_time); });
  std::vector<SearchNode> left = problem.nodes;
  for (const std::size_t j : order) {
    SearchJob& job = problem.jobs[j];
    const auto fits = [&](const Share& share) {
      const auto& free = left[static_cast<std::size_t>(share.node)].capacity;
      for (std::size_t r = 0; r < free.size(); ++r) {
        if (job.demand[r] > 0 && free[r] / job.demand[r] < share.replicas) return false;
      }
      return true;
    };
    job.pinned = std::ranges::all_of(job.previous, fits);
    for (const Share& share : job.previous) {
      auto& free = left[static_cast<std::size_t>(share.node)].capacity;
      for (std::size_t r = 0; r < free.size() && job.pinned; ++r) free[r] -= share.replicas * job.demand[r];
    }
    const int replicas = replica_count(job.previous);
    if (!job.pinned && (replicas < job.min_replicas || replicas > job.max_replicas)) job.previous.clear();
  }
}

}  // namespace

std::vector<std::int64_t> amounts(const Resources& resources, const std::vector<std::string>& types) {
  std::vector<std::int64_t> amounts;
  for (const std::string& type : types) {
    const auto found = resources.find(type);
    amounts.push_back(found == resources.end() ? 0 : std::max<std::int64_t>(found->second, 0));
  }
  return amounts;
}

Placement to_placement(const Allocation& allocation, const std::map<std::string_view, int>& nodes) {
  std::map<int, int> counts;
  for (const std::string& name : allocation) {
    const auto node = nodes.find(name);
    if (node == nodes.end()) return {};
    ++counts[node->second];
  }
  Placement placement;
  for (const auto& [node, replicas] : counts) placement.push_back({node, replicas});
  return placement;
}

std::int64_t room(const std::vector<std::int64_t>& demand, const std::vector<std::int64_t>& free) {
  std::int64_t fitting = std::numeric_limits<std::int64_t>::max();
  bool asks = false;
  for (std::size_t type = 0; type < demand.size(); ++type) {
    if (demand[type] <= 0) continue;
    asks = true;
    fitting = std::min(fitting, std::max<std::int64_t>(free[type], 0) / demand[type]);
  }
  return asks ? fitting : 0;
}

SearchFrame make_search_frame(const Problem& problem, const std::function<int(const JobInfo&)>& max_replicas) {
  SearchFrame frame;
  std::set<std::string> types;
  for (const JobInfo& job : problem.jobs) {
    for (const auto& [type, amount] : job.resources) {
      if (amount > 0) types.insert(type);
    }
  }
  frame.resources.assign(types.begin(), types.end());
  std::vector<const NodeInfo*> nodes;
  for (const NodeInfo& node : problem.nodes) nodes.push_back(&node);
  std::ranges::sort(
      nodes, {}, [](const NodeInfo* node) { return std::pair<bool, std::string_view>(node->preemptible, node->name); });
  std::map<std::string_view, int> index;
  for (const NodeInfo* node : nodes) {
    index.emplace(node->name, static_cast<int>(frame.node_names.size()));
    frame.node_names.push_back(node->name);
    frame.problem.nodes.push_back({amounts(node->resources, frame.resources)});
  }
  for (const JobInfo& job : problem.jobs) {
    const auto previous = problem.previous.find(job.name);
    frame.problem.jobs.push_back(
        make_job(job, max_replicas(job), frame.resources,
                 previous == problem.previous.end() ? Placement() : to_placement(previous->second, index)));
  }
  unpin_what_exceeds(problem.jobs, frame.problem);
  return frame;
}

std::vector<double> dominant_shares(const SearchProblem& problem) {
  std::vector<double> total(problem.nodes.empty() ? 0 : problem.nodes.front().capacity.size());
  for (const SearchNode& node : problem.nodes) {
    for (std::size_t r = 0; r < total.size(); ++r) total[r] += static_cast<double>(node.capacity[r]);
  }
  std::vector<double> shares;
  for (const SearchJob& job : problem.jobs) {
    double share = 0;
    for (std::size_t r = 0; r < job.demand.size(); ++r) {
      const double there = r < total.size() ? total[r] : 0;
      if (job.demand[r] > 0) share = std::max(share, static_cast<double>(job.demand[r]) / there);
    }
    shares.push_back(share);
  }
  return shares;
}

int profiled_limit(const JobInfo& job) {
  const int profiled = std::clamp(job.profiled_replicas, 0, std::numeric_limits<int>::max() / 2);
  return std::max(2 * profiled, 1);
}

bool side_by_side(const Allocation& allocation) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < allocation.size(); ++i) {
    if ((i == 0 || allocation[i] != allocation[i - 1]) && !seen.insert(allocation[i]).second) return false;
  }
  return true;
}

Allocation to_allocation(const SearchFrame& frame, const Placement& placement) {
  Allocation allocation;
  for (const Share& share : placement)
    allocation.insert(allocation.end(), static_cast<std::size_t>(share.replicas),
                      frame.node_names[static_cast<std::size_t>(share.node)]);
  return allocation;
}

}  // namespace adaptdl::sched
