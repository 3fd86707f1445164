#include "policy/sia/sia_placement.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "policy/base/comparable.h"

namespace adaptdl::sched::sia {
namespace {

// A cluster on which jobs are placed one after another.
class Packing {
 public:
  explicit Packing(const Model& model) : model_(model), nodes_(model.cluster.nodes), placed_(model.jobs.size()) {}

  // Places a job. Returns false and changes nothing if there is no room.
  bool put(std::size_t job, int configuration) {
    const Configuration& wanted = model_.jobs[job].configurations[configuration];
    std::optional<Placement> placement = wanted.keep ? where_it_is(model_.jobs[job]) : find(model_.jobs[job], wanted);
    if (!placement) return false;
    for (const Share& share : *placement) {
      take(nodes_[share.node], model_.jobs[job], share.replicas);
      if (placement->size() > 1) nodes_[share.node].distributed = true;
    }
    placed_[job] = {configuration, std::move(*placement), true};
    return true;
  }

  double cost() const {
    double sum = 0;
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      const Job& job = model_.jobs[i];
      sum += placed_[i].configuration < 0 ? job.cost_of_nothing : job.configurations[placed_[i].configuration].cost;
    }
    return sum;
  }

  std::vector<Placed>& placed() { return placed_; }

 private:
  std::optional<Placement> where_it_is(const Job& job) const {
    const bool distributed = job.current.size() > 1;
    for (const Share& share : job.current) {
      const Node& node = nodes_[share.node];
      if (room(node, job) < share.replicas || (distributed && node.distributed)) return std::nullopt;
    }
    return job.current;
  }

  std::optional<Placement> find(const Job& job, const Configuration& wanted) const {
    const int each = (wanted.replicas - 1) / wanted.nodes + 1;
    std::vector<std::tuple<bool, int, int>> candidates;  // (preemptible, room, index); lower is better
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.type != wanted.type || (wanted.nodes > 1 && node.distributed)) continue;
      const int here = room(node, job);
      if (here >= each) candidates.emplace_back(node.info->preemptible, here, static_cast<int>(i));
    }
    const auto needed = static_cast<std::size_t>(wanted.nodes);
    if (candidates.size() < needed) return std::nullopt;
    std::ranges::partial_sort(candidates, candidates.begin() + wanted.nodes);
    Placement placement;
    int left = wanted.replicas;
    for (std::size_t i = 0; i < needed; ++i) {
      // At least one replica is left for every node that follows.
      const int here = std::min(each, left - static_cast<int>(needed - i - 1));
      placement.push_back({std::get<2>(candidates[i]), here});
      left -= here;
    }
    std::ranges::sort(placement, {}, &Share::node);
    return placement;
  }

  const Model& model_;
  std::vector<Node> nodes_;
  std::vector<Placed> placed_;
};

// Returns the configuration with the same size and type that requires a restart, or -1 if there is none.
int moved(const Job& job, int configuration) {
  const Configuration& kept = job.configurations[configuration];
  const auto same = std::ranges::find_if(job.configurations, [&](const Configuration& one) {
    return !one.keep && one.type == kept.type && one.replicas == kept.replicas && one.nodes == kept.nodes;
  });
  return same == job.configurations.end() ? -1 : static_cast<int>(same - job.configurations.begin());
}

// Returns the jobs with a chosen configuration, those with the most nodes first, then those with the most replicas.
// With `keep_first`, jobs that stay in place precede others.
std::vector<std::size_t> order(const Model& model, const std::vector<int>& chosen, bool keep_first) {
  std::vector<std::size_t> jobs;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] >= 0) jobs.push_back(i);
  }
  std::ranges::stable_sort(jobs, {}, [&](std::size_t i) {
    const Configuration& one = model.jobs[i].configurations[chosen[i]];
    const bool stays = one.keep && (keep_first || moved(model.jobs[i], chosen[i]) < 0);
    return std::tuple(!stays, -one.nodes, -one.replicas, !one.keep);
  });
  return jobs;
}

// Places the choices. Returns whether all of them fit unchanged.
bool pack(const Model& model, const std::vector<int>& chosen, bool keep_first, Packing& packing) {
  bool all = true;
  for (const std::size_t i : order(model, chosen, keep_first)) {
    if (packing.put(i, chosen[i])) continue;
    all = false;
    const int other = model.jobs[i].configurations[chosen[i]].keep ? moved(model.jobs[i], chosen[i]) : -1;
    if (other >= 0) packing.put(i, other);
  }
  return all;
}

// Gives jobs without replicas the best configuration that still fits.
void fill(const Model& model, const std::vector<int>& chosen, Packing& packing) {
  std::vector<std::size_t> jobs;
  for (std::size_t i = 0; i < model.jobs.size(); ++i) {
    if (packing.placed()[i].configuration < 0 && !model.jobs[i].configurations.empty()) jobs.push_back(i);
  }
  std::ranges::stable_sort(jobs, {}, [&](std::size_t i) { return comparable(model.jobs[i].info->creation_time); });
  for (const std::size_t i : jobs) {
    const auto& configurations = model.jobs[i].configurations;
    std::vector<int> best_first(configurations.size());
    std::iota(best_first.begin(), best_first.end(), 0);
    std::ranges::stable_sort(best_first, {}, [&](int one) { return configurations[one].cost; });
    for (const int one : best_first) {
      if (!packing.put(i, one)) continue;
      packing.placed()[i].as_chosen = chosen[i] < 0;
      break;
    }
    if (packing.placed()[i].configuration < 0) packing.placed()[i].as_chosen = chosen[i] < 0;
  }
}

}  // namespace

std::vector<Placed> place(const Model& model, const std::vector<int>& chosen) {
  Packing stays(model);
  const bool all = pack(model, chosen, true, stays);
  fill(model, chosen, stays);
  if (all) return stays.placed();
  Packing repacked(model);
  pack(model, chosen, false, repacked);
  fill(model, chosen, repacked);
  return repacked.cost() < stays.cost() ? repacked.placed() : stays.placed();
}

}  // namespace adaptdl::sched::sia
