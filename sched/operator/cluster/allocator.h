// Allocates nodes to jobs by running a scheduling policy (policy/base/policy.h) on the state of the cluster.
//
// New jobs receive nodes immediately by first fit; in each scheduling cycle, the policy allocates nodes to all jobs.
// Policies assume that all jobs may use the same nodes. Jobs are therefore grouped by the nodes that they may use (node
// selector, affinity, tolerations), and the policy runs once per group, starting with the group that has the fewest
// nodes.
//
// If the cluster has a pool of nodes that can be added and removed, each cycle also decides on its size (node_pool.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/cluster/node_pool.h"
#include "operator/jobs/lifecycle.h"
#include "operator/nodes/node_facts.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

struct AllocatorJob {
  JobInfo info;
  nlohmann::json pod;                         // a replica's pod, which determines the nodes that the job may use
  Allocation current;                         // the allocation that the job has or is about to receive
  std::map<std::string, int> live;            // number of pods that may still be running, by node
  std::map<std::string, Resources> requests;  // requests of the pods in `live`, by node
  std::string uid;
  bool waits_for_first_fit = false;
  bool held = false;  // the job must not be started now
};

// Returns whether the job has nodes and must not be moved, because it is not preemptible.
bool is_pinned(const AllocatorJob& job);
// Subtracts the resources that a job holds or is about to hold from `free` (by node): those of its allocation and of
// its pods that may still be running.
void subtract_job(const AllocatorJob& job, std::map<std::string, Resources>& free);
// Returns how many replicas fit into `free` if each of them requests `replica`.
std::int64_t room_for(const Resources& replica, const Resources& free);

// Returns the number of different nodes in the allocation.
std::size_t count_nodes(const Allocation& allocation);
// Returns the goodput that the job's model predicts for its allocation: samples per second, weighted by their
// statistical efficiency. Empty until the job has been measured.
std::optional<double> goodput_of(const AllocatorJob& job);

struct AllocatorCluster {
  double now = 0;  // seconds
  std::vector<AllocatorJob> jobs;
  std::vector<NodeFacts> nodes;
  std::map<std::string, Resources> used;  // resources of pods that belong to none of `jobs`, by node
  // The part of `used`, by node, that the pods of jobs that are suspended, are being deleted or have ended will soon
  // release.
  std::map<std::string, Resources> released_soon;
  std::optional<NodePool> pool;   // empty if no nodes are added or removed
  std::set<std::string> surplus;  // surplus nodes of the last cycle; first fit prefers other nodes
};

using JobDecisions = std::map<std::string, JobDecision>;  // by job

struct CycleDecisions {
  JobDecisions jobs;
  std::optional<PoolDecision> pool;  // empty if the cluster has no pool
};

class Allocator {
 public:
  explicit Allocator(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}

  // Returns whether a job must be moved off a node that is about to be removed. Such a move must not wait for the next
  // cycle.
  static bool must_move_job(const AllocatorCluster& cluster);
  // Returns decisions for all jobs except held jobs and running jobs that must not be moved.
  CycleDecisions cycle(const AllocatorCluster& cluster);
  // Returns whether the policy can decide on the size of a pool. If it cannot, the cluster must not have a pool.
  bool chooses_size() const { return policy_->chooses_size(); }
  // Returns whether new jobs receive nodes by first fit. The result is false for policies that do not adapt the batch
  // size, because the next cycle of such a policy would undo the allocation.
  bool uses_first_fit() const { return policy_->adapts_batch_size(); }
  // Allocates nodes to the jobs that are waiting for first fit, the oldest first, and returns the decisions. Jobs that
  // do not fit into the free resources are omitted.
  static JobDecisions first_fit(const AllocatorCluster& cluster);

 private:
  std::unique_ptr<Policy> policy_;
  std::map<std::string, std::shared_ptr<const PolicyState>> states_;  // by the names of a group's nodes
};

}  // namespace adaptdl::sched
