// The life cycle of an AdaptDLJob: computes the next actions for a job from its status and its pods.
//
//   Pending    the job has no nodes
//   Starting   the job has nodes, and a group of pods is created on them, one pod per replica
//   Running    all pods of the group are running; its members may change (members_plan.h)
//   Stopping   the pods were asked to checkpoint and exit; the next group starts when all of them have ended
//   Suspended  spec.suspend is true, and all pods have ended
//   Succeeded  all replicas of a group exited with code 0
//   Failed     see `reason`
//
// plan_job() is a pure function. All state is stored in the job's status and the pods, and the status is written before
// the pods are changed, so an operator that is restarted at any point makes the same decisions. A group is started only
// when no pod of another group may still be running.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/generation.h"
#include "kube/api/timestamp.h"
#include "kube/jobs/job.h"
#include "operator/jobs/pod_facts.h"
#include "operator/nodes/node_price.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

struct LifecycleSettings {
  // How long pods may fail to start before the job fails or, if they are not scheduled, before nodes are chosen again.
  std::chrono::seconds start_timeout{600};
  // How long a job may wait if it would not fit on the nodes even if they were empty. 0 means forever.
  std::chrono::seconds unschedulable_timeout{600};
  bool live_rescale = false;      // whether members change without a restart if the job supports it
  std::vector<NodePrice> prices;  // empty if costs are not accounted for
};

// The allocator's decision on a job.
struct JobDecision {
  Allocation nodes;  // empty if the job must wait
  std::string reason;
  bool placeable = true;  // false if the nodes could not hold the job even if they were empty
  std::string uid;        // the job's uid: another job with the same name may have replaced the job
};

// Describes why the API server or an admission webhook refused to create a pod.
struct PodRefusal {
  std::optional<int> replica;  // the replica's number if it joins a running group, otherwise empty
  bool quota = false;          // the pod exceeds a quota of the namespace, so a retry may succeed
  std::string message;
};

enum class NodeState {
  kGone,
  kNotReady,
  kLeaving,   // runs pods, and is about to be removed
  kCordoned,  // runs pods, and accepts only those that tolerate the cordon
  kReady,
};

// The reports that the replicas of the current group have sent to the supervisor.
struct ReplicaReports {
  struct Wait {
    int after = 0;  // the replica requests a generation later than this one
    bool broken = false;
    bool operator==(const Wait&) const = default;
  };
  std::map<int, Wait> waits;  // the last request of each replica, by its number
  int trains = -1;            // the newest generation whose members are known to be training together
};

struct JobSituation {
  const nlohmann::json& job;
  const std::vector<PodFacts>& pods;    // all pods that the job owns
  std::optional<JobDecision> decision;  // empty if there is no new decision
  std::optional<PodRefusal> refusal;    // empty if no pod was refused
  nlohmann::json hints;                 // from the job's replicas; null if there are none
  std::function<NodeState(const std::string&)> node_state;
  kube::Time now;
  kube::Time leads_since;  // when this operator began to receive reports
  ReplicaReports reports;
  std::function<UsageRate(const Allocation&)> usage_rate;  // an allocation's rate; empty if usage is not accounted for
};

struct PodRemoval {
  std::string name, uid;
  bool force = false;  // without a grace period: the node is gone, or the replica must be killed
};

struct PodRank {
  std::string name, uid;
  int number = 0, rank = 0, replicas = 0;
};

struct JobEvent {
  bool warning = false;
  std::string reason, message;
};

// The actions to carry out for a job. The status must be written first.
struct Plan {
  nlohmann::json status;  // merge patch of the job's status; null if it does not change
  std::vector<PodRemoval> removals;
  std::vector<PodRank> ranks;  // ranks that must be written into the annotations of pods
  std::vector<int> missing;    // numbers of the current group's replicas whose pods must be created
  std::vector<JobEvent> events;
  std::optional<kube::Time> look_again;  // when to reconcile the job again

  // Whether the status starts a new group. If so, the pods must be listed first, because watches may be delayed.
  bool starts = false;
  // Addresses of the group by rank; empty until all of them are known.
  std::vector<std::string> addresses;
  // The current generation, if the members of the group have changed and all their addresses are known.
  std::optional<generation::Generation> generation;

  bool changes_nothing() const { return status.is_null() && removals.empty() && missing.empty() && ranks.empty(); }
};

Plan plan_job(const JobSituation& situation, const LifecycleSettings& settings);

}  // namespace adaptdl::sched
