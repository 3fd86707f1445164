// Replays workloads under a policy to find how long each job takes if that policy schedules the cluster.
//
// Time is simulated: jobs train for an interval, and then the policy decides which job gets which nodes next. What a
// job does in an interval is derived from measurements of real training: step times by placement and batch size, and
// gradient statistics and progress by epoch. share/adaptdl/osdi21/README.md describes the rules, and docs/formats.md
// describes the file formats.
//
// The same workload, traces, policy and options produce the same result on any number of threads.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policy/base/policy.h"
#include "simulator/application.h"
#include "simulator/workload.h"

namespace adaptdl::sched {

// A group of identical nodes.
struct NodeGroup {
  std::string gpu_type;  // "" if all nodes have the same type
  int nodes = 16;
  int gpus = 4;      // per node; each replica uses one
  double speed = 1;  // speed of a GPU, relative to the GPU in the traces; divides the computation time
  double price = 0;  // price of a node per hour, in any currency
};

// The cluster's size follows the policy's desired_nodes. The cluster begins with min_nodes, gets a new node in the
// cycle after the one that requested it, and loses its last nodes as soon as they are idle. If the policy does not
// choose the size, the cluster keeps its initial size.
struct Autoscale {
  int min_nodes = 1;
  int max_nodes = 1;
};

struct SimulationOptions {
  std::vector<NodeGroup> groups = {NodeGroup{}};
  double interval = 60;                // seconds between cycles
  double restart_cost = 30;            // seconds without progress after each change to a non-empty allocation
  double interference = 0;             // fraction of speed that distributed jobs lose on a shared node; in [0, 1)
  std::optional<Autoscale> autoscale;  // requires exactly one group, whose `nodes` is then ignored
};

// Throws UsageError, naming the option, if an option is out of range.
void check(const SimulationOptions& options);

struct JobOutcome {
  std::string name;
  std::string application;
  double submission_time = 0;
  std::optional<double> completion_time;  // unset if the simulation was stopped before completion
  int restarts = 0;
  double gpu_seconds = 0;  // while it held GPUs, including restarts
  double alone_time = 0;   // time it would take alone (see SimulationResult::worst_ftf); 0 if not completed
  double cost = 0;         // its GPUs' share of their nodes' prices, while it held the GPUs
};

// Times are in seconds. Hours and costs cover all jobs; the other figures cover completed jobs, and are 0 if there are
// none.
struct SimulationResult {
  std::string workload;
  std::string policy;
  double average_jct = 0;  // job completion time, from submission to completion
  double p50_jct = 0;      // percentiles by nearest rank
  double p99_jct = 0;
  double makespan = 0;  // from the first submission to the last completion
  double restarts_per_job = 0;
  double gpu_hours = 0;
  double node_hours = 0;  // hours of all nodes, from the first submission to the last completion
  double cost = 0;        // cost of all jobs
  double node_cost = 0;   // cost of all node_hours, used or not
  // Finish-time fairness: the largest ratio of a job's completion time to its alone_time. Alone, a job gets ceil(G / a)
  // GPUs, but no more than it can use. G is the number of GPUs in the cluster (with autoscaling, at its largest size),
  // and a is the mean number of active jobs: the sum of completion times divided by the makespan. The job has its GPUs
  // from its submission on, on as few nodes of the first group as possible. It pays the restart cost once, and chooses
  // its batch sizes by the same rules.
  double worst_ftf = 0;
  std::vector<JobOutcome> jobs;  // in workload order
  bool stopped = false;          // whether the simulation ended early; the figures then cover the simulated part
};

enum class JobState {
  kWaiting,     // has no replicas
  kRestarting,  // has replicas, but is still paying the restart cost
  kRunning,
  kCompleted,  // ended in the interval before this cycle; listed only once
};

struct CycleJob {
  std::string name;
  std::string application;
  double submission_time = 0;
  JobState state = JobState::kWaiting;
  Allocation allocation;
  std::size_t batch_size = 0;  // total; 0 if it waits
  int accum_steps = 0;
  int epoch = 0;        // completed epochs
  double progress = 0;  // fraction of the target, from 0 to 1
  int restarts = 0;
  std::optional<double> completion_time;
  std::string reason;  // the policy's reason for the allocation
};

// The cluster after the policy's decision.
struct CycleRecord {
  std::size_t task = 0;  // index of the simulation's task
  std::string workload;
  std::string policy;
  double time = 0;
  std::vector<NodeInfo> nodes;
  std::vector<CycleJob> jobs;  // submitted and not yet listed as completed, in workload order
  std::size_t completed = 0;   // number of completed jobs so far
  std::size_t total = 0;       // number of jobs in the workload
};

// Receives what simulations report. The functions are called from worker threads: in order within one simulation, and
// concurrently for several simulations. An exception from a function ends all simulations, and simulate() rethrows it.
class SimulationObserver {
 public:
  virtual ~SimulationObserver() = default;
  // Called after each cycle that has jobs to record.
  virtual void cycle(const CycleRecord& record) = 0;
  // Called after the last cycle.
  virtual void finished(std::size_t task, const SimulationResult& result) = 0;
};

// One workload under one policy. The workload and the policy must outlive the call.
struct SimulationTask {
  const Workload* workload = nullptr;
  const Policy* policy = nullptr;
  std::string policy_name;  // for the result and messages
};

// Runs the tasks on up to `threads` threads (0 means one per processor) and returns the results in task order.
// `observer` and `stop` may be null. When `stop` becomes true, simulations end at their next cycle, and their results
// have `stopped` set. Throws UsageError in the same cases as check(), and Error if a simulation is stuck, that is, no
// job has made progress for 1000 cycles with jobs and for the time of ten restarts.
std::vector<SimulationResult> simulate(std::span<const SimulationTask> tasks, const SimulationOptions& options,
                                       SimulationObserver* observer = nullptr, const std::atomic<bool>* stop = nullptr,
                                       unsigned threads = 0);

}  // namespace adaptdl::sched
