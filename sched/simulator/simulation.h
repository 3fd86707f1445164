// Simulates one workload under one policy, cycle by cycle.
//
// Threading: a simulation must be used by one thread at a time; several simulations may run at the same time.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "simulator/cluster.h"
#include "simulator/simulated_job.h"
#include "simulator/simulator.h"

namespace adaptdl::sched {

class Simulation {
 public:
  // All arguments must outlive the simulation. `index` is the task's index, which is passed to the observer. The
  // observer may be null.
  Simulation(std::size_t index, const SimulationTask& task, const SimulationOptions& options,
             SimulationObserver* observer);

  // Runs until all jobs have completed, or until the next cycle after one of the flags has become true. Throws Error in
  // the same cases as simulate().
  SimulationResult run(const std::vector<const std::atomic<bool>*>& stop);

 private:
  bool active(const SimulatedJob& job) const;
  bool completed() const;  // whether all jobs have completed
  void train();
  double next_cycle() const;
  Decision schedule(const std::vector<SimulatedJob*>& jobs);
  JobInfo describe(const SimulatedJob& job) const;
  void apply(const Decision& decision, const std::vector<SimulatedJob*>& jobs);
  void expect_progress(const std::vector<SimulatedJob*>& jobs, const Decision& decision);
  void record(const Decision& decision);
  CycleJob record(const SimulatedJob& job, const Decision& decision) const;

  std::size_t index_;
  const SimulationTask& task_;
  const SimulationOptions& options_;
  SimulationObserver* observer_;

  Cluster cluster_;
  std::vector<SimulatedJob> jobs_;  // in workload order
  std::shared_ptr<const PolicyState> state_;
  Allocations allocations_;  // allocations of the jobs that have one
  double cycle_ = 0;         // intervals so far
  double now_ = 0;
  double node_seconds_ = 0;       // from the first submission to the last completion
  double node_cost_ = 0;          // cost of the node-seconds
  std::vector<bool> reported_;    // by job: whether its completion was recorded
  std::vector<double> progress_;  // by job: the job's progress when it last grew
  int idle_cycles_ = 0;           // cycles with jobs to schedule since any job's progress last grew
};

}  // namespace adaptdl::sched
