// A pool of nodes and jobs that may use them, for tests of the pool's size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "operator/cluster/allocator.h"
#include "policy/policies.h"

namespace operator_pool_support {

using namespace adaptdl;
using namespace adaptdl::sched;
using nlohmann::json;

constexpr int kGpus = 4;  // per node

inline NodeFacts make_node(const std::string& name, const std::string& type = "pool", int gpus = kGpus) {
  return {.name = name,
          .gpu_type = "",
          .allocatable = {{"nvidia.com/gpu", gpus}, {"pods", 100}},
          .ready = true,
          .labels = {{"type", type}, {"kubernetes.io/hostname", name}},
          .taints = json::array()};
}

inline json selecting(const std::string& label, const std::string& value) {
  return {{"spec", {{"nodeSelector", {{label, value}}}}}};
}

// Returns a job that scales well up to `max` replicas, each with one GPU.
inline AllocatorJob make_job(const std::string& name, int max, int min = 0) {
  const goodput::PerfParams perf{0.01, 0.01, 0.001, 0, 0.001, 0, 1};
  AllocatorJob job;
  job.info.name = "ns/" + name;
  job.info.resources = {{"nvidia.com/gpu", 1}, {"pods", 1}};
  job.info.min_replicas = min;
  job.info.max_replicas = job.info.profiled_replicas = max;
  job.info.speedup = std::make_shared<const SpeedupFunction>(goodput::GoodputFunction(perf, {1e-3, 1}, 32),
                                                             goodput::Limits{4096, 1, 64, true});
  job.pod = json::object();
  return job;
}

inline AllocatorJob on(AllocatorJob job, const Allocation& nodes, bool preemptible = true) {
  job.current = nodes;
  job.live.clear();
  for (const std::string& node : nodes) ++job.live[node];
  job.info.preemptible = preemptible;
  return job;
}

// Returns a pool of nodes n0, n1, …, whose size may be between 0 and 8.
inline AllocatorCluster make_cluster(int nodes) {
  AllocatorCluster cluster;
  cluster.now = 100'000;  // the jobs are old, so that a restart is cheap for them
  cluster.pool = NodePool{.pod = selecting("type", "pool"), .min_nodes = 0, .max_nodes = 8};
  for (int i = 0; i < nodes; ++i) cluster.nodes.push_back(make_node("n" + std::to_string(i)));
  return cluster;
}

inline CycleDecisions cycle(const AllocatorCluster& cluster) {
  return Allocator(make_policy("adaptive", {})).cycle(cluster);
}
inline int desired(const AllocatorCluster& cluster) { return cycle(cluster).pool.value().desired_nodes; }

inline std::size_t waiting(const CycleDecisions& decisions) {
  return static_cast<std::size_t>(
      std::ranges::count_if(decisions.jobs, [](const auto& each) { return each.second.nodes.empty(); }));
}

}  // namespace operator_pool_support
