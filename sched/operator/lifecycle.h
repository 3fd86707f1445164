// The life of an AdaptDLJob: what is to be done next for a job, given what the cluster says of it.
//
//   Pending    it has no nodes
//   Starting   it has nodes, and a group of pods is created on them, one pod per replica
//   Running    all of the group run
//   Stopping   the group's pods were asked to checkpoint and end; the next group starts when all have ended
//   Succeeded  every replica of a group exited with 0
//   Failed     see `reason`
//
// A pure function decides. All that it goes by is in the job's status and in the pods, and the status is written before
// the pods are changed, so an operator that ends at any point is followed by one that decides the same. A group is
// started only when no pod of another one may still run.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/timestamp.h"
#include "operator/pod_facts.h"
#include "policy/policy.h"

namespace adaptdl::sched {

struct LifecycleSettings {
  // How long pods may fail to start before the job fails, or gets other nodes if only those are the trouble.
  std::chrono::seconds start_timeout{600};
  // How long a job may wait that no node of the cluster could ever hold. 0: for ever.
  std::chrono::seconds unschedulable_timeout{600};
};

// The allocator's word on a job.
struct JobDecision {
  Allocation nodes;  // none: it waits
  std::string reason;
  bool placeable = true;  // false: the cluster's nodes could not hold it even if they were empty
  std::string uid;        // of the job: another one may have taken its name
};

// The API server, or an admission webhook, refused a pod for good or for now.
struct PodRefusal {
  bool quota = false;  // it exceeds the namespace's quota
  std::string message;
};

enum class NodeState { kGone, kNotReady, kReady };

struct JobSituation {
  const nlohmann::json& job;
  const std::vector<PodFacts>& pods;    // all that the job owns
  std::optional<JobDecision> decision;  // if there is a new one
  std::optional<PodRefusal> refusal;    // of one of its pods
  nlohmann::json hints;                 // that its replicas sent; null: none
  std::function<NodeState(const std::string&)> node_state;
  kube::Time now;
};

struct PodRemoval {
  std::string name, uid;
  bool force = false;  // its node is gone, so that nothing confirms its end
};

struct JobEvent {
  bool warning = false;
  std::string reason, message;
};

// What to do, in this order.
struct Plan {
  nlohmann::json status;  // a merge patch of the job's status; null: no change
  std::vector<PodRemoval> removals;
  std::vector<int> missing;  // ranks of the present group whose pods are to be created
  std::vector<JobEvent> events;
  std::optional<kube::Time> look_again;

  // Whether the status starts a new group. That must not happen on what is known of the pods from watches alone.
  bool starts = false;
  // Addresses by rank of the group, once all are known.
  std::vector<std::string> addresses;

  bool changes_nothing() const { return status.is_null() && removals.empty() && missing.empty(); }
};

Plan plan_job(const JobSituation& situation, const LifecycleSettings& settings);

// Until when a job must not be started again, after a start that failed through no fault of its own.
std::optional<kube::Time> retry_after(const nlohmann::json& job);

}  // namespace adaptdl::sched
