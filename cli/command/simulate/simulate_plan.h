// The options of `adaptdl simulate`, and the simulator's plan that they describe.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "policy/policies.h"
#include "simulator/simulator.h"

namespace adaptdl::cli {

// The options as given on the command line; an option that was not given is empty.
struct SimulateOptions {
  std::vector<std::string> workloads, policies, node_groups;
  std::string traces, nodes, gpus, node_price, interval, restart_cost, interference, fairness, autoscale, seed, threads,
      out;
  bool json = false;
};

struct SimulatePlan {
  std::vector<sched::Workload> workloads;  // names are unique
  std::vector<std::string> policy_names;
  std::vector<std::unique_ptr<sched::Policy>> policies;  // in the order of `policy_names`
  sched::SimulationOptions simulation;
  unsigned threads = 0;  // 0: one per processor

  // Returns every workload under every policy, in the order of the table. The tasks point into the plan.
  std::vector<sched::SimulationTask> tasks() const;
};

// Reads all files. Throws UsageError on the first invalid option or file.
SimulatePlan make_plan(const SimulateOptions& options);

// Returns the workload files without duplicates: the given files, and all .csv files in or below the given directories,
// in natural order. Throws UsageError for a path that does not exist, and for a directory that contains no .csv files.
std::vector<std::filesystem::path> workload_files(const std::vector<std::string>& arguments);

// Returns a name for each file, without ".csv" and with as many parent directories as are needed to make it unique.
std::vector<std::string> workload_names(const std::vector<std::filesystem::path>& files);

}  // namespace adaptdl::cli
