#include "allocation_validator.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace adaptdl::sched {
namespace {

using Counts = std::map<std::string, std::int64_t>;  // replicas by node name

Counts count(const Allocation& allocation) {
  Counts counts;
  for (const std::string& node : allocation) ++counts[node];
  return counts;
}

class Validation {
 public:
  Validation(const Problem& problem, const Decision& decision, const Promises& promises)
      : problem_(problem), decision_(decision), promises_(promises) {
    for (const NodeInfo& node : problem.nodes) nodes_[node.name] = &node;
    for (const JobInfo& job : problem.jobs) find_pinned(job);
    for (const NodeInfo& node : problem.nodes) pins_fit_ = pins_fit_ && has_room(node, pinned_);
  }

  std::vector<std::string> run() {
    std::set<std::string> names;
    for (const JobInfo& job : problem_.jobs) {
      names.insert(job.name);
      check_job(job);
    }
    for (const auto& [name, allocation] : decision_.allocations)
      if (!names.contains(name)) complain("{}: is no job of the problem", name);
    for (const NodeInfo& node : problem_.nodes) check_node(node);
    const auto nodes = static_cast<int>(problem_.nodes.size());
    if (decision_.desired_nodes < 0) complain("{} desired nodes", decision_.desired_nodes);
    if (problem_.max_nodes > 0 && decision_.desired_nodes > std::max(problem_.max_nodes, nodes))
      complain("{} desired nodes, at most {} are allowed", decision_.desired_nodes, problem_.max_nodes);
    if (decision_.desired_nodes < std::min(problem_.min_nodes, nodes))
      complain("{} desired nodes, at least {} are required", decision_.desired_nodes, problem_.min_nodes);
    if (!problem_.node_template && decision_.desired_nodes != nodes)
      complain("{} desired nodes, there are {} and no template", decision_.desired_nodes, nodes);
    return std::move(found_);
  }

 private:
  template <typename... Arguments>
  void complain(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    found_.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  static bool asks(const JobInfo& job) {
    return std::ranges::any_of(job.resources, [](const auto& each) { return each.second > 0; });
  }

  // A job that lost some of its nodes has stopped, so it may continue elsewhere and is not pinned.
  void find_pinned(const JobInfo& job) {
    const auto previous = problem_.previous.find(job.name);
    if (job.preemptible || previous == problem_.previous.end() || previous->second.empty()) return;
    const Counts counts = count(previous->second);
    if (std::ranges::all_of(counts, [&](const auto& each) { return nodes_.contains(each.first); }))
      pinned_[job.name] = counts;
  }

  // Uses long double, because the sums of hostile amounts exceed 64 bits.
  bool has_room(const NodeInfo& node, const std::map<std::string, Counts>& placed) const {
    std::map<std::string, long double> used;
    for (const JobInfo& job : problem_.jobs) {
      const auto counts = placed.find(job.name);
      if (counts == placed.end()) continue;
      const auto here = counts->second.find(node.name);
      if (here == counts->second.end()) continue;
      for (const auto& [type, amount] : job.resources)
        if (amount > 0) used[type] += static_cast<long double>(amount) * static_cast<long double>(here->second);
    }
    return std::ranges::all_of(used, [&](const auto& each) {
      const auto capacity = node.resources.find(each.first);
      return each.second <= static_cast<long double>(capacity == node.resources.end() ? 0 : capacity->second);
    });
  }

  void check_job(const JobInfo& job) {
    const auto reason = decision_.reasons.find(job.name);
    if (reason == decision_.reasons.end() || reason->second.empty()) complain("{}: has no reason", job.name);
    const auto found = decision_.allocations.find(job.name);
    if (found == decision_.allocations.end()) return complain("{}: has no allocation", job.name);
    const Allocation& allocation = found->second;
    placed_[job.name] = count(allocation);
    check_names(job, allocation);
    if (pins_fit_ && pinned_.contains(job.name) && (asks(job) || !allocation.empty())) {
      if (placed_[job.name] != pinned_[job.name]) complain("{}: is pinned and moved to {}", job.name, allocation);
      return;
    }
    // If not all pinned allocations are possible together, a pinned job may still keep its own.
    if (allocation.empty() || (pinned_.contains(job.name) && placed_[job.name] == pinned_[job.name])) return;
    check_size(job, static_cast<std::int64_t>(allocation.size()));
  }

  void check_names(const JobInfo& job, const Allocation& allocation) {
    std::set<std::string> done;
    for (std::size_t i = 0; i < allocation.size(); ++i) {
      if (!nodes_.contains(allocation[i])) complain("{}: \"{}\" is no node", job.name, allocation[i]);
      if (i > 0 && allocation[i] == allocation[i - 1]) continue;
      if (!done.insert(allocation[i]).second) complain("{}: replicas of a node apart in {}", job.name, allocation);
    }
  }

  void check_size(const JobInfo& job, std::int64_t replicas) {
    if (!asks(job)) complain("{}: asks for nothing and got {} replicas", job.name, replicas);
    if (replicas < job.min_replicas) complain("{}: {} replicas, needs {}", job.name, replicas, job.min_replicas);
    if (replicas > job.max_replicas) complain("{}: {} replicas, may have {}", job.name, replicas, job.max_replicas);
    const std::int64_t profiled =
        std::max<std::int64_t>({2 * std::int64_t{job.profiled_replicas}, job.min_replicas, 1});
    if (promises_.profiled_limit && replicas > profiled)
      complain("{}: {} replicas, measured with {}", job.name, replicas, job.profiled_replicas);
  }

  void check_node(const NodeInfo& node) {
    if (!has_room(node, placed_)) complain("{}: gives more than it has", node.name);
    int distributed = 0;
    for (const auto& [job, counts] : placed_) {
      const auto pinned = pinned_.find(job);
      if (pinned != pinned_.end() && pinned->second == counts) continue;
      distributed += counts.size() > 1 && counts.contains(node.name);
    }
    if (promises_.separates && distributed > 1) complain("{}: has {} distributed jobs", node.name, distributed);
  }

  const Problem& problem_;
  const Decision& decision_;
  Promises promises_;
  std::map<std::string, const NodeInfo*> nodes_;
  std::map<std::string, Counts> pinned_, placed_;
  bool pins_fit_ = true;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> violations(const Problem& problem, const Decision& decision, const Promises& promises) {
  return Validation(problem, decision, promises).run();
}

}  // namespace adaptdl::sched
