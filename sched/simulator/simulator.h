// Replays workloads against a policy: how long each job would take, had the cluster been scheduled so.
//
// Time is simulated: the cluster stands still for no one between two cycles, jobs train for an interval, and then the
// policy says who gets which nodes next. What a job does in an interval follows from measurements of real training:
// step times by placement and batch size, gradient statistics and progress by epoch. The rules
// stand in share/adaptdl/osdi21/README.md, the formats of the files in docs/formats.md.
//
// Deterministic: the same workload, traces, policy and options give the same result, on however many threads.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "simulator/application.h"
#include "simulator/workload.h"

namespace adaptdl::sched {

// Nodes that are alike.
struct NodeGroup {
  std::string gpu_type;  // "" where all are of one type
  int nodes = 16;
  int gpus = 4;      // of each node; a replica takes one
  double speed = 1;  // of a GPU, relative to that of the traces: the time of computation is divided by it
  double price = 0;  // of a node per hour, in any currency
};

// The cluster's size follows the policy's desired_nodes. It begins with the least nodes, has a new node in the cycle
// after the one that asked for it, and gives the last ones back as soon as they are idle. Under a policy that
// has no wish (desired_nodes as they are) it stays as it began.
struct Autoscale {
  int min_nodes = 1;
  int max_nodes = 1;
};

struct SimulationOptions {
  std::vector<NodeGroup> groups = {NodeGroup{}};
  double interval = 60;                // seconds between cycles
  double restart_cost = 30;            // seconds without progress after each change to a non-empty allocation
  double interference = 0;             // by which fraction distributed jobs that share a node are slowed; in [0, 1)
  std::optional<Autoscale> autoscale;  // needs exactly one group, whose `nodes` is then not looked at
};

// Throws UsageError, naming the option, if one is out of its range.
void check(const SimulationOptions& options);

struct JobOutcome {
  std::string name;
  std::string application;
  double submission_time = 0;
  std::optional<double> completion_time;  // none: the simulation was stopped before
  int restarts = 0;
  double gpu_seconds = 0;  // while it held GPUs, restarts included
  double alone_time = 0;   // what it would take alone (see SimulationResult::worst_ftf)
  double cost = 0;         // its GPUs' share of the price of their nodes, while it held them
};

// Times in seconds. Figures are over the jobs that completed; all are 0 if none did.
struct SimulationResult {
  std::string workload;
  std::string policy;
  double average_jct = 0;  // job completion time: from submission to completion
  double p50_jct = 0;      // percentiles by nearest rank
  double p99_jct = 0;
  double makespan = 0;  // from the first submission to the last completion
  double restarts_per_job = 0;
  double gpu_hours = 0;
  double node_hours = 0;  // that the cluster had nodes, from the first submission to the last completion
  double cost = 0;        // of all jobs
  double node_cost = 0;   // of all nodes in node_hours, used or not
  // Finish-time fairness: the largest of completion time over alone_time. Alone, a job gets ceil(G / a) GPUs, G all
  // GPUs of the cluster (with autoscaling: of its largest size) and a the mean number of active jobs, the sum of
  // completion times over the makespan; but no more than it can use. It has them from its submission on, on as few
  // nodes as can be of the first group, pays the restart cost once, and chooses its batch sizes by the same rules.
  double worst_ftf = 0;
  std::vector<JobOutcome> jobs;  // in the order of the workload
  bool stopped = false;          // by the stop flag; what is there is of the part before
};

enum class JobState {
  kWaiting,     // has no replicas
  kRestarting,  // has replicas, and pays the restart cost first
  kRunning,
  kCompleted,  // in the interval before this cycle; listed once
};

struct CycleJob {
  std::string name;
  std::string application;
  double submission_time = 0;
  JobState state = JobState::kWaiting;
  Allocation allocation;
  std::size_t batch_size = 0;  // in all; 0 if it waits
  int accum_steps = 0;
  int epoch = 0;        // epochs done
  double progress = 0;  // of the target, from 0 to 1
  int restarts = 0;
  std::optional<double> completion_time;
  std::string reason;  // the policy's
};

// The cluster after the policy's decision.
struct CycleRecord {
  std::size_t task = 0;  // index of the simulation
  std::string workload;
  std::string policy;
  double time = 0;
  std::vector<NodeInfo> nodes;
  std::vector<CycleJob> jobs;  // submitted and not completed before, in the order of the workload
  std::size_t completed = 0;   // jobs so far
  std::size_t total = 0;       // jobs of the workload
};

// Called from worker threads: for one simulation in order, for several at the same time. What it throws ends the
// simulations and is passed on.
class SimulationObserver {
 public:
  virtual ~SimulationObserver() = default;
  // After each cycle. Cycles without a job to schedule are left out.
  virtual void cycle(const CycleRecord& record) = 0;
  // After the last cycle.
  virtual void finished(std::size_t task, const SimulationResult& result) = 0;
};

// One workload under one policy. Both pointers must outlive the call.
struct SimulationTask {
  const Workload* workload = nullptr;
  const Policy* policy = nullptr;
  std::string policy_name;  // as it is to stand in the result
};

// The results in the order of the tasks, which run on up to `threads` threads (0: one a processor). `observer` may be
// null. When `stop` (may be null) becomes true, simulations end at their next cycle and their results say so.
// Throws UsageError as check() does, and Error if a simulation gets nowhere: no job has made progress for 1000 cycles
// in which there were jobs, and for the time of ten restarts.
std::vector<SimulationResult> simulate(std::span<const SimulationTask> tasks, const SimulationOptions& options,
                                       SimulationObserver* observer = nullptr, const std::atomic<bool>* stop = nullptr,
                                       unsigned threads = 0);

}  // namespace adaptdl::sched
