// The options of `adaptdl simulate`, and what they ask the simulator to do.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "policy/policies.h"
#include "simulator/simulator.h"

namespace adaptdl::cli {

// As given on the command line; empty: not given.
struct SimulateOptions {
  std::vector<std::string> workloads, policies, node_groups;
  std::string traces, nodes, gpus, node_price, interval, restart_cost, interference, fairness, autoscale, seed, threads, out;
  bool json = false;
};

struct SimulatePlan {
  std::vector<sched::Workload> workloads;  // names are unique
  std::vector<std::string> policy_names;
  std::vector<std::unique_ptr<sched::Policy>> policies;  // of these names
  sched::SimulationOptions simulation;
  unsigned threads = 0;  // 0: one a processor

  // Every workload under every policy, in the order of the table. They point into the plan.
  std::vector<sched::SimulationTask> tasks() const;
};

// Reads all files. Throws UsageError on the first thing that makes no sense.
SimulatePlan make_plan(const SimulateOptions& options);

// The workloads' files: those that are named, and of a directory every .csv in it and below, in natural order. Each
// once. Throws UsageError for one that is not there, and for a directory without any.
std::vector<std::filesystem::path> workload_files(const std::vector<std::string>& arguments);

// What each file is called: its name without ".csv", with as many of the directories above it as tell it from others.
std::vector<std::string> workload_names(const std::vector<std::filesystem::path>& files);

}  // namespace adaptdl::cli
