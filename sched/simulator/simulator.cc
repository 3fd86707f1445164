#include "simulator/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "adaptdl/error.h"
#include "simulator/simulation.h"

namespace adaptdl::sched {
namespace {

// Larger clusters are rejected as mistakes.
constexpr int kMaxPerGroup = 100'000;  // nodes, and also GPUs per node
constexpr double kMaxGpus = 1e9;

void require(bool condition, std::string_view option, double value, std::string_view range) {
  if (!condition) throw UsageError(fmt::format("{} must be {}, not {}", option, range, value));
}

void check_group(const NodeGroup& group) {
  require(group.nodes >= 0 && group.nodes <= kMaxPerGroup, "the number of nodes", group.nodes, "from 0 to 100000");
  require(group.gpus >= 1 && group.gpus <= kMaxPerGroup, "the number of GPUs per node", group.gpus, "from 1 to 100000");
  require(std::isfinite(group.speed) && group.speed > 0, "the speed of a GPU", group.speed, "a number above 0");
  require(std::isfinite(group.price) && group.price >= 0, "the price of a node", group.price, "a number of at least 0");
}

}  // namespace

void check(const SimulationOptions& options) {
  require(options.interval >= 0.001 && options.interval <= 1e6, "the interval", options.interval,
          "from 0.001 to 1000000 seconds");
  require(options.restart_cost >= 0 && options.restart_cost <= 1e6, "the restart cost", options.restart_cost,
          "from 0 to 1000000 seconds");
  require(options.interference >= 0 && options.interference < 1, "the interference", options.interference,
          "at least 0 and below 1");
  if (options.groups.empty()) throw UsageError("the cluster has no node groups; specify at least one");
  double gpus = 0;
  std::map<std::string, double> speeds;
  for (const NodeGroup& group : options.groups) {
    check_group(group);
    gpus += static_cast<double>(options.autoscale ? options.autoscale->max_nodes : group.nodes) * group.gpus;
    const auto [known, fresh] = speeds.emplace(group.gpu_type, group.speed);
    if (!fresh && known->second != group.speed) {
      throw UsageError(
          fmt::format("{} have two speeds, {} and {}; use one speed, or two types",
                      group.gpu_type.empty() ? "GPUs without a type" : fmt::format("GPUs of type '{}'", group.gpu_type),
                      known->second, group.speed));
    }
  }
  require(gpus <= kMaxGpus, "the number of GPUs in the cluster", gpus, "at most 1000000000");
  if (!options.autoscale) return;
  const auto [min_nodes, max_nodes] = *options.autoscale;
  if (min_nodes < 1 || max_nodes < min_nodes || max_nodes > kMaxPerGroup) {
    throw UsageError(fmt::format("invalid range of node counts, {} to {}: expected 1 <= minimum <= maximum <= 100000",
                                 min_nodes, max_nodes));
  }
  if (options.groups.size() > 1) {
    throw UsageError("a cluster with several node groups cannot be autoscaled; use one group, or no autoscaling");
  }
}

std::vector<SimulationResult> simulate(std::span<const SimulationTask> tasks, const SimulationOptions& options,
                                       SimulationObserver* observer, const std::atomic<bool>* stop, unsigned threads) {
  check(options);
  std::vector<SimulationResult> results(tasks.size());
  std::vector<std::exception_ptr> errors(tasks.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto work = [&] {
    for (std::size_t i = next++; i < tasks.size(); i = next++) {
      try {
        results[i] = Simulation(i, tasks[i], options, observer).run({stop, &failed});
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  if (threads == 0) threads = std::max(std::thread::hardware_concurrency(), 1U);
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 1; i < std::min<std::size_t>(threads, tasks.size()); ++i) workers.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

}  // namespace adaptdl::sched
