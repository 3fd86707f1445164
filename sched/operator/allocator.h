// Which nodes the jobs of a cluster get: the cluster in a policy's terms.
//
// New jobs get nodes at once, by first fit; each cycle a policy allocates to all jobs. Policies know one set of nodes
// for all jobs. Where jobs may use different ones (selectors, tolerations), those with the same nodes are allocated
// together, the ones with fewest nodes to choose from first.
//
// Threading: used by one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/lifecycle.h"
#include "operator/node_facts.h"
#include "policy/policy.h"

namespace adaptdl::sched {

struct AllocatorJob {
  JobInfo info;
  nlohmann::json pod;               // of a replica, for the nodes that it may use
  Allocation current;               // that it has, or is about to have
  std::map<std::string, int> live;  // pods that may still run, by node
  std::string uid;
  bool waits_for_first_fit = false;
  bool stopping = false;
  bool held = false;  // it must not be started now
};

struct AllocatorCluster {
  double now = 0;  // seconds
  std::vector<AllocatorJob> jobs;
  std::vector<NodeFacts> nodes;
  std::map<std::string, Resources> used;  // by node: what pods other than those of `jobs` hold
};

using JobDecisions = std::map<std::string, JobDecision>;  // by job

class Allocator {
 public:
  explicit Allocator(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}

  // For all jobs but those that are held, or run and may not be moved.
  JobDecisions cycle(const AllocatorCluster& cluster);
  // Whether new jobs get nodes by first fit. Under policies with fixed sizes, the next cycle would change all of that.
  bool uses_first_fit() const { return policy_->adapts_batch_size(); }
  // For jobs that wait for it, the oldest first, as far as they fit on what is free now. The others are left out.
  static JobDecisions first_fit(const AllocatorCluster& cluster);

 private:
  std::unique_ptr<Policy> policy_;
  std::map<std::string, std::shared_ptr<const PolicyState>> states_;  // by the names of the nodes
};

}  // namespace adaptdl::sched
