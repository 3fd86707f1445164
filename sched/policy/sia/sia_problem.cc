#include "policy/sia/sia_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/counted.h"
#include "policy/search/search_frame.h"
#include "policy/search/search_state.h"

namespace adaptdl::sched::sia {
namespace {

// A job that was restarted very often can still be moved, but only for a twentyfold gain.
constexpr double kMinRestartFactor = 0.05;
// The extra cost of having no replicas, relative to the job's worst configuration. At p = -1, a job saves the same
// amount if it doubles the goodput of its worst configuration. (With the paper's 0.1, running jobs grow before new ones
// start, and short jobs wait for hours.)
constexpr double kCostOfWaiting = 0.5;
// Above this number of nodes, sizes grow in steps of a quarter, so that the programs for large clusters stay small.
constexpr int kEveryNumberOfNodes = 16;

template <class Range>
int index_of(const Range& sorted, const std::string& name) {
  return static_cast<int>(std::ranges::lower_bound(sorted, name) - sorted.begin());
}

Cluster make_cluster(const Problem& problem) {
  std::set<std::string> types, resources;
  for (const NodeInfo& node : problem.nodes) types.insert(node.gpu_type);
  for (const JobInfo& job : problem.jobs) {
    for (const auto& [name, amount] : job.resources) {
      if (amount > 0) resources.insert(name);
    }
  }
  Cluster cluster{{types.begin(), types.end()}, {resources.begin(), resources.end()}, {}};
  for (const NodeInfo& info : problem.nodes) {
    Node node{&info, index_of(cluster.types, info.gpu_type), amounts(info.resources, cluster.resources), false};
    cluster.nodes.push_back(std::move(node));
  }
  std::ranges::sort(cluster.nodes, {}, [](const Node& node) {
    return std::pair<bool, std::string_view>(node.info->preemptible, node.info->name);
  });
  return cluster;
}

bool fits(const Cluster& cluster, const Job& job, const Placement& placement) {
  return std::ranges::all_of(
      placement, [&](const Share& share) { return room(cluster.nodes[share.node], job) >= share.replicas; });
}

// Subtracts a job's current placement from the nodes. Returns false and changes nothing if the placement is empty or no
// longer fits.
bool pin(Cluster& cluster, const Job& job) {
  const bool there = std::ranges::all_of(job.current, [&](const Share& share) {
    const Node& node = cluster.nodes[share.node];
    for (std::size_t i = 0; i < job.demand.size(); ++i) {
      if (job.demand[i] > 0 && node.free[i] / job.demand[i] < share.replicas) return false;
    }
    return true;
  });
  if (!there || job.current.empty()) return false;
  for (const Share& share : job.current) take(cluster.nodes[share.node], job, share.replicas);
  return true;
}

// A job's goodput on each GPU type.
class Goodputs {
 public:
  Goodputs(const JobInfo& job, const std::vector<std::string>& types) : job_(job), functions_(types.size()) {
    for (const std::string& type : types) {
      const auto speed = job.gpu_speed.find(type);
      const double value = speed == job.gpu_speed.end() ? 1 : speed->second;
      speeds_.push_back(std::isfinite(value) && value > 0 ? value : 0);
    }
  }

  double speed(int type) const { return speeds_[type]; }

  // Returns 0 if the job cannot run.
  double operator()(int type, int nodes, int replicas) {
    if (speeds_[type] == 0) return 0;
    if (!job_.speedup) return speeds_[type] * replicas;
    if (speeds_[type] == 1) return job_.speedup->goodput(nodes, replicas);
    std::optional<SpeedupFunction>& function = functions_[type];
    if (!function) {
      const goodput::GoodputFunction& measured = job_.speedup->goodput_function();
      goodput::PerfParams perf = measured.perf_params();
      perf.alpha_c /= speeds_[type];
      perf.beta_c /= speeds_[type];
      function.emplace(goodput::GoodputFunction(perf, measured.grad_params(), measured.init_batch_size()),
                       job_.speedup->limits());
    }
    return function->goodput(nodes, replicas);
  }

 private:
  const JobInfo& job_;
  std::vector<double> speeds_;
  std::vector<std::optional<SpeedupFunction>> functions_;
};

// The room for one job on nodes of one type.
struct TypeRoom {
  int per_node = 0;  // replicas on the emptiest node
  int whole = 0;     // nodes with that much room
};

TypeRoom room_on(const Cluster& cluster, const Job& job, int type) {
  TypeRoom result;
  for (const Node& node : cluster.nodes) {
    if (node.type != type) continue;
    const int here = room(node, job);
    if (here > result.per_node) result = {here, 0};
    if (here == result.per_node) ++result.whole;
  }
  return result;
}

// Returns pairs of replicas and nodes, with the fewest replicas first.
std::vector<std::pair<int, int>> sizes(const TypeRoom& room, int min_replicas, int max_replicas) {
  std::set<std::pair<int, int>> all;
  const auto add = [&](std::int64_t replicas, int nodes) {
    if (replicas >= min_replicas && replicas <= max_replicas) all.emplace(static_cast<int>(replicas), nodes);
  };
  for (int replicas = 1; replicas <= room.per_node; replicas *= 2) add(replicas, 1);
  for (int nodes = 1; nodes <= room.whole; nodes += nodes < kEveryNumberOfNodes ? 1 : nodes / 4)
    add(std::int64_t{nodes} * room.per_node, nodes);
  // The job's minimum may not be among these sizes.
  const int nodes = (min_replicas - 1) / room.per_node + 1;
  if (nodes <= room.whole) add(min_replicas, nodes);
  return {all.begin(), all.end()};
}

// Returns why a job has no configuration.
std::string obstacle_of(const JobInfo& job, int min_replicas, bool room_anywhere) {
  if (job.max_replicas < min_replicas)
    return fmt::format("needs at least {}, but its maximum is {}", counted(min_replicas, "replica"), job.max_replicas);
  if (min_replicas > kMaxReplicasPerJob)
    return fmt::format("needs at least {} replicas, but no job gets more than {}", min_replicas, kMaxReplicasPerJob);
  return room_anywhere ? "no positive goodput on any number of replicas"
                       : "no room for the minimum number of replicas on nodes of a single type";
}

void add_configurations(const Cluster& cluster, Goodputs& goodputs, Job& job) {
  const int min_replicas = std::max(job.info->min_replicas, 1);
  bool room_anywhere = false;
  for (int type = 0; type < static_cast<int>(cluster.types.size()); ++type) {
    const TypeRoom there = room_on(cluster, job, type);
    if (there.per_node == 0) continue;
    double best = 0;
    for (const auto& [replicas, nodes] :
         sizes(there, min_replicas, std::min(job.info->max_replicas, kMaxReplicasPerJob))) {
      room_anywhere = true;
      const double goodput = goodputs(type, nodes, replicas);
      // Sizes with more replicas but no more goodput are left out.
      if (!std::isfinite(goodput) || goodput <= best) continue;
      best = goodput;
      job.configurations.push_back({type, replicas, nodes, false, goodput, 0});
    }
  }
  if (job.configurations.empty()) job.obstacle = obstacle_of(*job.info, min_replicas, room_anywhere);
}

void add_current(const Cluster& cluster, Goodputs& goodputs, Job& job) {
  const int replicas = replica_count(job.current);
  if (replicas == 0 || replicas < job.info->min_replicas || replicas > job.info->max_replicas ||
      !fits(cluster, job, job.current)) {
    job.current.clear();
    return;
  }
  // All replicas wait for the slowest GPU.
  int slowest = cluster.nodes[job.current.front().node].type;
  for (const Share& share : job.current) {
    const int type = cluster.nodes[share.node].type;
    if (goodputs.speed(type) < goodputs.speed(slowest)) slowest = type;
  }
  const int nodes = static_cast<int>(job.current.size());
  const double goodput = goodputs(slowest, nodes, replicas);
  if (std::isfinite(goodput) && goodput > 0)
    job.configurations.push_back({slowest, replicas, nodes, true, goodput, 0});
  else
    job.current.clear();
}

void set_costs(const Problem& problem, const Weights& weights, Job& job) {
  double min_goodput = std::numeric_limits<double>::infinity();
  for (const Configuration& one : job.configurations) min_goodput = std::min(min_goodput, one.goodput);
  double restart_factor = 1;
  if (!job.current.empty()) {
    const double age = std::max(0.0, problem.now - job.info->creation_time);  // 0 for NaN
    const double restart_cost = job.info->restart_cost.value_or(weights.restart_cost);
    const double useful = age - job.info->num_restarts * restart_cost;
    const double factor = useful / (age + restart_cost);
    restart_factor = factor > kMinRestartFactor ? std::min(factor, 1.0) : kMinRestartFactor;
  }
  double worst = -std::numeric_limits<double>::infinity();
  for (Configuration& one : job.configurations) {
    one.goodput /= min_goodput;
    const double value = one.goodput * (one.keep ? 1 : restart_factor);
    one.cost =
        weights.fairness == 0 ? -std::log(value) : std::copysign(std::pow(value, weights.fairness), -weights.fairness);
    worst = std::max(worst, one.cost);
  }
  job.cost_of_nothing = worst + kCostOfWaiting * std::max(1.0, std::abs(worst));
}

}  // namespace

int room(const Node& node, const Job& job) {
  const int max_replicas = std::clamp(job.info->max_replicas, 0, kMaxReplicasPerJob);
  return static_cast<int>(std::min<std::int64_t>(sched::room(job.demand, node.free), max_replicas));
}

void take(Node& node, const Job& job, int replicas) {
  for (std::size_t i = 0; i < job.demand.size(); ++i) node.free[i] -= job.demand[i] * replicas;
}

Model make_model(const Problem& problem, const Weights& weights) {
  Model model{make_cluster(problem), {}};
  Cluster& cluster = model.cluster;
  std::map<std::string_view, int> nodes;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i)
    nodes.emplace(cluster.nodes[i].info->name, static_cast<int>(i));
  for (const JobInfo& info : problem.jobs) {
    const auto previous = problem.previous.find(info.name);
    const Placement current = previous == problem.previous.end() ? Placement() : to_placement(previous->second, nodes);
    Job job{&info, amounts(info.resources, cluster.resources), current, false, {}, 0, ""};
    job.pinned = !info.preemptible && pin(cluster, job);
    model.jobs.push_back(std::move(job));
  }
  for (Job& job : model.jobs) {
    if (job.pinned) continue;
    if (std::ranges::all_of(job.demand, [](std::int64_t amount) { return amount == 0; })) {
      job.obstacle = "requests no resources";
      job.current.clear();
      continue;
    }
    Goodputs goodputs(*job.info, cluster.types);
    add_configurations(cluster, goodputs, job);
    add_current(cluster, goodputs, job);
    if (job.configurations.empty()) continue;
    job.obstacle.clear();
    set_costs(problem, weights, job);
  }
  return model;
}

}  // namespace adaptdl::sched::sia
