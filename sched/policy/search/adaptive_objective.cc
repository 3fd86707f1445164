#include "policy/search/adaptive_objective.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policy/search/search_frame.h"
#include "policy/search/search_state.h"

namespace adaptdl::sched {
namespace {

constexpr int kFirstReplicas = 4;
constexpr int kGrowth = 4;
constexpr double kRankPower = 0.4, kFullPower = 0.4, kLeftPower = 0.1, kLatePower = 0.3;
constexpr double kUnknownLeft = 600;  // minimum, in seconds, if the remaining work is unknown
constexpr double kUnknownPower = 0.5;
constexpr double kMinStay = 60;  // bounds on the time that an allocation is expected to last, in seconds
constexpr double kMaxStay = 400;
constexpr double kMinFactor = 0.05;  // lower bound of f for a changed allocation

double finite_or(double value, double otherwise) { return std::isfinite(value) ? value : otherwise; }

// The assumed speedup of a job that has not been measured yet. With linear speedup, a new job would get either
// all the replicas of other jobs or none.
double unknown_speedup(double replicas) { return std::pow(replicas, kUnknownPower); }

// Returns the time left on one replica, in seconds. A job that does not report its target is assumed to be half done.
double time_left(const JobInfo& job) {
  const double goodput = job.speedup ? job.speedup->goodput(1, 1) : 0;
  const double done = finite_or(job.attained_service, 0);
  double left = std::max(kUnknownLeft, done);
  if (goodput > 0 && job.progress && job.target_progress) {
    const auto samples = static_cast<double>(job.speedup->goodput_function().init_batch_size());
    left = finite_or((*job.target_progress - *job.progress) * samples / goodput, left);
  }
  return std::max(left, 1.0);
}

// How many replicas of a job fit on the roomiest empty node, and on all empty nodes together.
struct ReplicaRoom {
  std::int64_t on_node = 1, on_all = 0;
};

ReplicaRoom measure_room(const SearchJob& job, const std::vector<SearchNode>& nodes) {
  ReplicaRoom found;
  for (const SearchNode& node : nodes) {
    const std::int64_t there = std::min<std::int64_t>(room(job.demand, node.capacity), kMaxReplicasPerJob);
    found.on_node = std::max(found.on_node, there);
    found.on_all = std::min<std::int64_t>(found.on_all + there, kMaxReplicasPerJob);
  }
  return found;
}

// Returns the best speedup among a few sizes, which is accurate enough because speedups are smooth.
double full_speedup(const JobInfo& job, const ReplicaRoom& room) {
  if (!job.speedup) {
    const int least = std::max(job.min_replicas, 1);
    return unknown_speedup(std::clamp(kFirstReplicas, least, std::max(job.max_replicas, least)));
  }
  double full = 1;
  for (std::int64_t r = 1; r <= std::min<std::int64_t>(room.on_all, job.max_replicas);
       r += std::max<std::int64_t>(1, r / 3))
    full = std::max(full, (*job.speedup)(r > room.on_node ? 2 : 1, static_cast<int>(r)));
  return full;
}

// Returns `late` (see the header), which is at least 1. The fair share is an equal share of the replicas that fit on
// all nodes.
double lateness(const JobInfo& job, double left, double age, const ReplicaRoom& room, std::size_t jobs) {
  const auto sharers = static_cast<std::int64_t>(jobs);
  const std::int64_t fair =
      std::clamp<std::int64_t>((room.on_all + sharers - 1) / sharers, 1, std::max(job.max_replicas, 1));
  const double to_do = job.progress && job.target_progress ? 1 - *job.progress / *job.target_progress
                                                           : left / (left + finite_or(job.attained_service, 0));
  const double speedup = job.speedup
                             ? std::max((*job.speedup)(fair > room.on_node ? 2 : 1, static_cast<int>(fair)), 0.5)
                             : unknown_speedup(static_cast<double>(fair));
  const double late = (age + left / speedup) / (left / std::max(to_do, 1e-3) / speedup);
  return std::max(finite_or(late, 1), 1.0);
}

}  // namespace

int adaptive_limit(const JobInfo& job) {
  return job.profiled_replicas > 0 ? kGrowth * std::min(job.profiled_replicas, 1 << 20) : kFirstReplicas;
}

AdaptiveObjective::AdaptiveObjective(const std::vector<const JobInfo*>& jobs, const SearchProblem& search,
                                     double restart_cost, double now)
    : jobs_(jobs.size()) {
  std::vector<double> at_best(jobs.size());
  for (std::size_t index = 0; index < jobs.size(); ++index) {
    const JobInfo& job = *jobs[index];
    Weighed& weighed = jobs_[index];
    const ReplicaRoom room = measure_room(search.jobs[index], search.nodes);
    const double age = std::max(finite_or(now - job.creation_time, 0), 0.0);
    const double full = full_speedup(job, room);
    weighed.node = static_cast<std::size_t>(room.on_node);
    weighed.measured = job.speedup != nullptr;
    weighed.left = time_left(job);
    weighed.restart_cost = job.restart_cost.value_or(restart_cost);
    weighed.horizon =
        std::clamp(age / (std::max(job.num_restarts, 0) + 1.0), std::max(kMinStay, 2 * weighed.restart_cost),
                   std::max(kMaxStay, 4 * weighed.restart_cost));
    weighed.weight = std::pow(full, -kFullPower) * std::pow(weighed.left, -kLeftPower) *
                     std::pow(lateness(job, weighed.left, age, room, jobs.size()), kLatePower);
    at_best[index] = weighed.left / full;
  }
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t index) { return at_best[index]; });
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    jobs_[order[rank]].weight *= std::pow(static_cast<double>(rank + 1), kRankPower) * jobs[order[rank]]->weight;
}

double AdaptiveObjective::changed(const Weighed& job, double speedup) {
  double stay = job.horizon;
  if (job.measured && speedup > 0) stay = std::min(stay, job.left / std::max(speedup, 0.1) + job.restart_cost);
  return std::max(1 - job.restart_cost / stay, kMinFactor);
}

void AdaptiveObjective::set_values(std::size_t index, const SpeedupRows& speedups, SearchJob& job) const {
  const Weighed& weighed = jobs_[index];
  const auto speedup = [&](std::size_t nodes, std::size_t replicas) {
    if (replicas > weighed.node) {
      replicas -= replicas % weighed.node;
    } else if (replicas > 4) {
      replicas -= replicas % 2;
    }
    return weighed.measured ? speedups(nodes, replicas) : unknown_speedup(speedups(nodes, replicas));
  };
  const std::size_t held = static_cast<std::size_t>(replica_count(job.previous));
  const auto value = [&](std::size_t nodes, std::size_t replicas) {
    const double s = speedup(nodes, replicas);
    const double factor = held > 0 ? changed(weighed, s) : 1.0;
    return weighed.weight * s * factor;
  };
  double keep = 0, none = 0;
  if (held > 0 && held < speedups.one_node.size()) {
    const double s = speedup(job.previous.size(), held);
    keep = weighed.weight * s;
    none = keep * (changed(weighed, s) - 1);
  }
  job.keep = keep;
  job.one_node = job.many_nodes = {none};
  for (std::size_t replicas = 1; replicas < speedups.one_node.size(); ++replicas) {
    job.one_node.push_back(value(1, replicas));
    job.many_nodes.push_back(value(2, replicas));
  }
}

}  // namespace adaptdl::sched
