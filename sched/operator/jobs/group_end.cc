#include "operator/jobs/group_end.h"

#include <fmt/format.h>

#include <algorithm>

namespace adaptdl::sched {
namespace {

using Kind = GroupEnd::Kind;

// Kubernetes marks a node as not ready after 40 s without a heartbeat (50 s since version 1.32).
constexpr std::chrono::seconds kNodeLossNoticed{90};

GroupEnd restart_group(const std::string& reason, const std::string& message) {
  return {Kind::kRestart, reason, message, {}};
}

// Looks for a replica that was ended, or is about to be ended, by something other than its program.
GroupEnd lost_replica(const JobSituation& at, const std::vector<const PodFacts*>& replicas, bool all_created) {
  GroupEnd end;
  for (std::size_t rank = 0; rank < replicas.size(); ++rank) {
    const PodFacts* pod = replicas[rank];
    const std::string who = fmt::format("replica {}", rank);
    if (pod == nullptr) {
      // Until all pods of the group have been created, a missing pod is not a lost pod.
      if (all_created) return restart_group("ReplicaLost", who + " was deleted");
      continue;
    }
    if (is_gone(at, *pod) && pod->end != PodEnd::kSucceeded)
      return restart_group("NodeLost", fmt::format("{} was on node '{}', which no longer exists", who, pod->node));
    if (pod->end == PodEnd::kLost)
      return restart_group("ReplicaLost",
                           pod->message.empty() ? who + " was deleted" : fmt::format("{}: {}", who, pod->message));
    // If its pod is being deleted, a program exits with 143, which is not a failure even if the job is not preemptible.
    if (pod->leaving && (pod->live() || pod->end == PodEnd::kCheckpointed))
      return restart_group("ReplicaLost", who + " is being deleted");
    // No event reports that a node has had no Node object for so long that it is considered gone.
    if (pod->live() && !pod->node.empty() && !responds(at, pod->node)) end.look_again = at.now + kNodeCheck;
  }
  return end;
}

// Decides how to handle the failure of a replica, which may be a consequence of the failure of a peer's node.
// Kubernetes detects the failure of a node only after some time.
GroupEnd end_of_failure(const JobSituation& at, const std::vector<const PodFacts*>& replicas, const PodFacts& failure) {
  const std::string who = fmt::format("replica {}", failure.rank);
  // The node does not assign the device to another pod while the device is unhealthy.
  if (failure.unhealthy_device) return restart_group("ReplicaLost", fmt::format("{}: {}", who, failure.message));
  const kube::Time noticed = failure.ended ? *failure.ended + kNodeLossNoticed : at.now;
  for (const PodFacts* pod : replicas) {
    if (pod == nullptr || !pod->live() || pod->node == failure.node) continue;
    if (at.node_state(pod->node) == NodeState::kNotReady)
      return restart_group("NodeLost",
                           fmt::format("replica {} is on node '{}', which is not ready", pod->rank, pod->node));
    if (noticed > at.now) return {Kind::kWaits, {}, {}, noticed};
  }
  return {Kind::kFailed,
          failure.reason.empty() ? "PodFailure" : failure.reason,
          failure.message.empty() ? who + " failed" : fmt::format("{}: {}", who, failure.message),
          {}};
}

// Finds the first replica whose program did not end successfully.
GroupEnd ended_replica(const JobSituation& at, const kube::Job& job, const std::vector<const PodFacts*>& replicas) {
  const PodFacts* first = nullptr;
  for (const PodFacts* pod : replicas) {
    if (pod == nullptr) continue;
    const bool checkpointed = pod->end == PodEnd::kCheckpointed;
    if (checkpointed && job.preemptible)
      return restart_group("ReplicaStopped",
                           fmt::format("replica {} stopped and exited with code 143", pod->rank));
    const bool earlier = first == nullptr || (pod->ended && first->ended && *pod->ended < *first->ended);
    if ((checkpointed || pod->end == PodEnd::kFailed) && earlier) first = pod;
  }
  return first == nullptr ? GroupEnd() : end_of_failure(at, replicas, *first);
}

}  // namespace

GroupEnd group_end(const JobSituation& situation, const kube::Job& job, const std::vector<const PodFacts*>& replicas,
                   bool all_created) {
  // Losses are checked first, because replicas that lose a peer fail.
  const GroupEnd loss = lost_replica(situation, replicas, all_created);
  if (loss.kind != Kind::kNone) return loss;
  GroupEnd end = ended_replica(situation, job, replicas);
  if (loss.look_again) end.look_again = std::min(*loss.look_again, end.look_again.value_or(*loss.look_again));
  return end;
}

bool is_gone(const JobSituation& situation, const PodFacts& pod) {
  return !pod.node.empty() && situation.node_state(pod.node) == NodeState::kGone;
}

bool responds(const JobSituation& situation, const std::string& node) {
  const NodeState state = situation.node_state(node);
  return state != NodeState::kGone && state != NodeState::kNotReady;
}

}  // namespace adaptdl::sched
