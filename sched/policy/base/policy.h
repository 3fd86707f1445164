// The interface of a scheduling policy, which decides which job gets which nodes.
//
// The local scheduler, the cluster's operator and the simulator call a policy once per cycle. A policy is a pure
// function of its options, of the state that it returned last time, and of the current cluster. The same input yields
// the same decision (random choices are seeded). Each decision states its reasons.
//
// Threading: a Policy is const and may be called from any thread. A SpeedupFunction caches its values when it is
// called, so calls to optimize() whose problems share a SpeedupFunction must not run at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policy/base/speedup.h"

namespace adaptdl::sched {

// Amounts by type of resource, in the smallest unit that the caller uses: {"nvidia.com/gpu", 4}, {"cpu", 16000}.
using Resources = std::map<std::string, std::int64_t>;

// No policy gives a job more replicas than this, even if the job's own limit is higher. This bounds the time and memory
// that a cycle needs. A job with a larger minimum waits.
constexpr int kMaxReplicasPerJob = 4096;

struct NodeInfo {
  std::string name;     // unique
  Resources resources;  // what jobs under this policy may use: all except what other pods hold
  bool preemptible = false;
  std::string gpu_type;  // "" if all nodes have the same type
};

struct JobInfo {
  std::string name;             // unique: "namespace/name"
  Resources resources;          // per replica; amounts below 1 request nothing
  int min_replicas = 0;         // the job gets either no replicas or at least this many
  int max_replicas = 1;         // the limit set by its owner and its batch sizes
  bool preemptible = true;      // if false, the job keeps its first allocation (it is pinned)
  double creation_time = 0;     // seconds, on the clock of Problem::now
  double attained_service = 0;  // replica-seconds that it has held so far
  int num_restarts = 0;         // how many times its allocation has changed, not counting its first start
  int profiled_replicas = 0;    // largest number of replicas that it was measured with; 0 before the first time
  double weight = 1;            // relative weight of its speedup, for policies that use weights ("adaptive")
  // Seconds without progress that a change of its allocation costs the job. If unset, PolicyOptions::restart_cost
  // applies.
  std::optional<double> restart_cost;

  // Relative goodput by number of replicas. Null before the first measurement; policies then assume a linear
  // speedup, except for adaptive (see adaptive_objective.h).
  std::shared_ptr<const SpeedupFunction> speedup;
  // Scale-invariant iterations (steps at the initial batch size): done so far and required in total, if the job reports
  // them.
  std::optional<double> progress, target_progress;

  // The number of replicas that the user chose, for policies that do not adapt it. 0 means max_replicas.
  int requested_replicas = 0;
  // An oracle that returns the job's remaining training time, in seconds, on a given number of replicas. Null if
  // unknown.
  std::function<double(int)> remaining_time;
  // The speed of each GPU type, relative to the type on which the job was measured. A missing type has speed 1.
  std::map<std::string, double> gpu_speed;
};

// The name of each replica's node, with the replicas of a node next to each other. If the allocation is empty, the job
// waits.
using Allocation = std::vector<std::string>;
using Allocations = std::map<std::string, Allocation>;  // by job; a job that is missing has no replicas

// What a policy carries from cycle to cycle, such as a population or queues. Each policy has its own type.
struct PolicyState {
  virtual ~PolicyState() = default;
};

struct Problem {
  double now = 0;  // seconds, on any clock
  std::vector<JobInfo> jobs;
  std::vector<NodeInfo> nodes;
  Allocations previous;                   // what is running now; may name jobs and nodes that no longer exist
  std::optional<NodeInfo> node_template;  // a node that could be added; if unset, the cluster's size is fixed
  // With a template, Decision::desired_nodes is between min_nodes and max_nodes. If the current number of nodes is
  // outside this range, the range extends to it. A max_nodes of 0 means twice the current number.
  int min_nodes = 0, max_nodes = 0;
  std::optional<int> last_desired;  // desired_nodes of the last decision, kept if it still makes sense
};

struct Decision {
  Allocations allocations;                     // for every job in the problem
  std::map<std::string, std::string> reasons;  // by job: one clause that explains its allocation
  int desired_nodes = 0;  // how many nodes the cluster should have; the current number if its size is fixed
  // If the policy chooses the size: the utility of the current nodes (cluster_size.h), and whether the policy desires
  // more nodes than the utility alone would justify, because jobs are waiting.
  std::optional<double> utility;
  bool for_waiting_jobs = false;
  std::shared_ptr<const PolicyState> state;  // for the next cycle
};

class Policy {
 public:
  virtual ~Policy() = default;

  // Every allocation respects the nodes' resources and the job's minimum and maximum, and pinned jobs keep their
  // allocations. If the policy separates distributed jobs (jobs on several nodes), each node runs replicas of at most
  // one unpinned distributed job. `state` is the last decision's state, or null. REQUIRES unique names. Unusual input
  // is allowed (no nodes, jobs that fit nowhere, speedups that are not finite): a job that cannot run waits, and its
  // reason explains why.
  virtual Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>& state) const = 0;

  // Whether each job chooses the batch size with the best goodput on its allocation. Otherwise, jobs keep the batch
  // sizes that their users chose.
  virtual bool adapts_batch_size() const { return true; }

  // Whether the policy chooses the size of the cluster, based on the utility of the nodes, if the problem has a node
  // template.
  virtual bool chooses_size() const { return false; }

  // Whether the policy keeps distributed jobs off each other's nodes (see optimize()), because such jobs slow each
  // other down on a shared network interface. The classic policies do not separate them.
  virtual bool separates_distributed_jobs() const { return true; }
};

// Places a new job before the next cycle: its minimum number of replicas (at least one) on the first node that has room
// for all of them. Nodes are ordered by name, with preemptible nodes last. Returns an empty allocation if there is no
// such node. `nodes` contains only free resources.
Allocation allocate_job(const JobInfo& job, const std::vector<NodeInfo>& nodes);

}  // namespace adaptdl::sched
