// Which job gets which nodes: what a scheduling policy is asked, and what it answers.
//
// A policy is asked once a cycle, by the local scheduler, the cluster's operator and the simulator alike. It is a pure
// function: of its options, the state that it returned the last time, and the cluster as it is. The same question gets
// the same answer (whatever is random in it follows from a seed), and each answer says why.
//
// Threading: a Policy is const and may be asked from any thread. A SpeedupFunction fills its memory as it is asked, so
// two questions that share one must not be asked at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policy/speedup.h"

namespace adaptdl::sched {

// Amounts by type of resource, in the smallest unit that the caller counts in: {"nvidia.com/gpu", 4}, {"cpu", 16000}.
using Resources = std::map<std::string, std::int64_t>;

// The most that any policy gives to one job, whatever the job's own limit: it bounds the time and the memory that a
// cycle takes. A job that needs more at least waits.
constexpr int kMostReplicas = 4096;

struct NodeInfo {
  std::string name;     // unique
  Resources resources;  // what jobs under this policy may take: all but what other pods hold
  bool preemptible = false;
  std::string gpu_type;  // "" where all are of one type
};

struct JobInfo {
  std::string name;             // unique: "namespace/name"
  Resources resources;          // of one replica; amounts below 1 ask for nothing
  int min_replicas = 0;         // fewer are of no use to it: it gets none, or at least these
  int max_replicas = 1;         // what its owner and its batch sizes allow
  bool preemptible = true;      // false: once allocated it keeps exactly what it has (it is pinned)
  double creation_time = 0;     // seconds, on the clock of Problem::now
  double attained_service = 0;  // replica-seconds that it has held so far
  int num_restarts = 0;         // how often its allocation has changed, its first start not counted
  int profiled_replicas = 0;    // the most replicas that it was measured with; 0: nothing measured yet
  double weight = 1;            // of its speedup beside those of other jobs, for policies that weigh them ("adaptive")
  // Seconds without progress that a change of its allocation costs it. None: as PolicyOptions say.
  std::optional<double> restart_cost;

  // Relative goodput of a number of replicas. Null: nothing measured yet, taken as linear in the replicas.
  std::shared_ptr<const SpeedupFunction> speedup;
  // In scale-invariant iterations (steps at the initial batch size): done so far, and needed in all, if it says.
  std::optional<double> progress, target_progress;

  // What a user chose by hand, for policies that do not adapt. 0: max_replicas.
  int requested_replicas = 0;
  // What an oracle knows: seconds that the job has left to train, on that many replicas. Null: not known.
  std::function<double(int)> remaining_time;
  // Of a GPU type, relative to that on which the job was measured. One that is missing: 1.
  std::map<std::string, double> gpu_speed;
};

// The node of each replica, by name, replicas of a node side by side. Empty: the job waits.
using Allocation = std::vector<std::string>;
using Allocations = std::map<std::string, Allocation>;  // by job; one that is missing has none

// What a policy carries from cycle to cycle: a population, queues. Each policy knows its own kind.
struct PolicyState {
  virtual ~PolicyState() = default;
};

struct Problem {
  double now = 0;  // seconds, on any clock
  std::vector<JobInfo> jobs;
  std::vector<NodeInfo> nodes;
  Allocations previous;                   // what runs now; jobs or nodes that are gone are ignored
  std::optional<NodeInfo> node_template;  // a node that could be added. None: the cluster's size is fixed
  // With a template, desired_nodes is at least min_nodes, unless there are fewer, and at most max_nodes, unless there
  // are more. max_nodes 0: twice as many as there are.
  int min_nodes = 0, max_nodes = 0;
  std::optional<int> last_desired;  // the last desired_nodes, which are kept if they still make sense
};

struct Decision {
  Allocations allocations;                     // of every job of the problem
  std::map<std::string, std::string> reasons;  // of every job: one clause that says why it has what it has
  int desired_nodes = 0;          // how many nodes the cluster should have; as many as now if its size is fixed
  // If the policy chooses the size: the utility of the nodes that there are (cluster_size.h), and whether more nodes are
  // desired than their utility would justify, because jobs wait.
  std::optional<double> utility;
  bool for_waiting_jobs = false;
  std::shared_ptr<const PolicyState> state;  // for the next cycle
};

class Policy {
 public:
  virtual ~Policy() = default;

  // Every allocation keeps within the nodes' resources and the job's minimum and maximum, pinned jobs keep theirs, and
  // a node has replicas of at most one distributed job (one on several nodes) that is not pinned, if the policy
  // separates such jobs. `state` is what the last decision returned, or null. REQUIRES unique names. Anything else may
  // be odd (no nodes, jobs that fit nowhere, speedups that are not finite): such a job waits, and its reason says so.
  virtual Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>& state) const = 0;

  // Whether jobs under it choose their own batch sizes, for the best goodput on what they have. Else they keep those
  // that their users chose.
  virtual bool adapts_batch_size() const { return true; }

  // Whether it chooses the size of a cluster with a node template, by the utility of its nodes.
  virtual bool chooses_size() const { return false; }

  // Whether it keeps distributed jobs off each other's nodes (see above). The classic ones do not: on one network
  // interface such jobs slow each other down.
  virtual bool separates_distributed_jobs() const { return true; }
};

// For a new job, before the next cycle: on the first node that has room for all of the job's least replicas (at least
// one), preemptible nodes last, then by name. Empty if there is none. `nodes` says what is free.
Allocation allocate_job(const JobInfo& job, const std::vector<NodeInfo>& nodes);

}  // namespace adaptdl::sched
