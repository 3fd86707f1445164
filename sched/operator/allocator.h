// Decides which jobs get which nodes by running a scheduling policy (policy/policy.h) on the state of the cluster.
//
// New jobs get nodes immediately by first fit; each scheduling cycle, the policy allocates nodes to all jobs. Policies
// assume that all jobs may use the same nodes. Jobs are therefore grouped by the nodes that they may use (node
// selector, affinity, tolerations), and the policy runs once per group, starting with the group that has the fewest
// nodes.
//
// With a pool of nodes that can be added and removed, each cycle also decides how many there should be (node_pool.h).
//
// Threading: not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/lifecycle.h"
#include "operator/node_facts.h"
#include "operator/node_pool.h"
#include "policy/policy.h"

namespace adaptdl::sched {

struct AllocatorJob {
  JobInfo info;
  nlohmann::json pod;                         // a replica's pod, which determines the nodes that it may use
  Allocation current;                         // the allocation that it has or is about to get
  std::map<std::string, int> live;            // by node: number of pods that may still run
  std::map<std::string, Resources> requests;  // by node: of these pods
  std::string uid;
  bool waits_for_first_fit = false;
  bool held = false;  // must not be started now
};

// Whether the job has nodes and must not be moved.
bool is_pinned(const AllocatorJob& job);
// Subtracts what a job holds or is about to hold: its allocation, and pods that may still run.
void subtract_job(const AllocatorJob& job, std::map<std::string, Resources>& free);
// Returns how many replicas fit into these resources.
std::int64_t room_for(const Resources& replica, const Resources& free);

// Number of different nodes.
std::size_t count_nodes(const Allocation& allocation);
// Samples per second, weighted by their statistical efficiency, that the job's model gives for its allocation. Empty
// until the job has been measured.
std::optional<double> goodput_of(const AllocatorJob& job);

struct AllocatorCluster {
  double now = 0;  // seconds
  std::vector<AllocatorJob> jobs;
  std::vector<NodeFacts> nodes;
  std::map<std::string, Resources> used;  // by node: held by pods that do not belong to `jobs`
  // By node: the part of `used` that is released soon, by pods of jobs that are suspended, deleted or have ended.
  std::map<std::string, Resources> released_soon;
  std::optional<NodePool> pool;   // none: no nodes are added or removed
  std::set<std::string> surplus;  // by the last cycle; first fit prefers other nodes
};

using JobDecisions = std::map<std::string, JobDecision>;  // by job

struct CycleDecisions {
  JobDecisions jobs;
  std::optional<PoolDecision> pool;  // if the cluster has a pool
};

class Allocator {
 public:
  explicit Allocator(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}

  // Whether a job must be moved off a node that is about to be removed, which must not wait for the next cycle.
  static bool must_move_job(const AllocatorCluster& cluster);
  // Returns decisions for all jobs except those that are held, and running jobs that must not be moved.
  CycleDecisions cycle(const AllocatorCluster& cluster);
  // Whether the policy can decide on the size of a pool. If not, clusters must not have one.
  bool chooses_size() const { return policy_->chooses_size(); }
  // Whether new jobs get nodes by first fit. False for policies that do not adapt the batch size, because their next
  // cycle would undo it.
  bool uses_first_fit() const { return policy_->adapts_batch_size(); }
  // Returns decisions for the jobs that wait for first fit, the oldest first. Omits jobs that do not fit on what is
  // free.
  static JobDecisions first_fit(const AllocatorCluster& cluster);

 private:
  std::unique_ptr<Policy> policy_;
  std::map<std::string, std::shared_ptr<const PolicyState>> states_;  // by the names of a group's nodes
};

}  // namespace adaptdl::sched
