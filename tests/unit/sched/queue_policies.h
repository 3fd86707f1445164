// Small clusters for tests of Tiresias, Optimus and FIFO.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "policy/base/policy.h"

namespace adaptdl::sched {

inline std::vector<NodeInfo> gpu_nodes(int count, int gpus) {
  std::vector<NodeInfo> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back({fmt::format("n{}", i), {{"gpu", gpus}}, false, ""});
  return nodes;
}

// Returns a job submitted at `time`, whose user requests `replicas`.
inline JobInfo tuned_job(const std::string& name, double time, int replicas) {
  JobInfo job;
  job.name = name;
  job.resources = {{"gpu", 1}};
  job.max_replicas = 64;
  job.creation_time = time;
  job.requested_replicas = replicas;
  return job;
}

// Runs a policy cycle by cycle on a cluster.
struct Schedule {
  const Policy& policy;
  Problem problem;
  std::shared_ptr<const PolicyState> state = nullptr;
  Decision decision = {};

  JobInfo& job(const std::string& name) { return *std::ranges::find(problem.jobs, name, &JobInfo::name); }
  void remove(const std::string& name) {
    std::erase_if(problem.jobs, [&](const JobInfo& each) { return each.name == name; });
  }
  // Runs one cycle and applies the decision.
  const Decision& next() {
    decision = policy.optimize(problem, state);
    state = decision.state;
    problem.previous = decision.allocations;
    return decision;
  }
  std::size_t replicas(const std::string& name) const { return decision.allocations.at(name).size(); }
  std::size_t nodes(const std::string& name) const {
    const Allocation& allocation = decision.allocations.at(name);
    return std::set(allocation.begin(), allocation.end()).size();
  }
};

}  // namespace adaptdl::sched
