// Plans how the members of a running job change without restarting the members that stay: replicas are added and
// removed, and the others continue after one of them is lost. The job's program must follow generations
// (docs/formats.md), which it reports with the hint liveRescale.
//
// These are pure functions around the state machine of membership/membership.h, whose devices are nodes here. A replica
// is identified by a number: its rank in the first generation of a group or, if it joins the group later, a number that
// was never used in the group.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/generation.h"
#include "operator/jobs/lifecycle.h"
#include "operator/jobs/membership_status.h"
#include "operator/jobs/replica_pod.h"

namespace adaptdl::sched {

// Returns whether the job's replicas follow generations, according to its hints.
bool follows_generations(const nlohmann::json& hints);

// Returns a replica's place in its group for the creation of its pod, without a token or a hostname.
PodPlace place_of(const nlohmann::json& job, int number);

struct MembersPlan {
  StoredMembership membership;  // must be stored in the status
  Allocation target;            // the nodes that the job should have; ordered by rank once the job has them
  Allocation nodes;             // the members' nodes, by rank
  // Pods of the members by rank, null for a member without a pod. If `whole` is true, a member is done, is being
  // deleted, or has ended in a way that the others do not survive, so the caller must check whether the group as a
  // whole has ended.
  std::vector<const PodFacts*> members;
  bool whole = false;
  std::optional<std::string> restart;  // why the group must be restarted to change its members
  std::optional<std::string> failure;  // why the group cannot continue and must be restarted, after a pause
  bool changed = false;                // a generation was issued
  bool steady = true;                  // no change is in progress

  std::vector<PodRemoval> removals;
  std::vector<int> missing;  // numbers of replicas whose pods must be created
  std::vector<PodRank> ranks;
  std::vector<JobEvent> events;
  std::optional<generation::Generation> generation;  // the current one, once the addresses of its members are known
};

// REQUIRES that the job's phase is Running. Throws Error if the job's stored membership is invalid.
MembersPlan plan_members(const JobSituation& situation, const kube::Job& job, const LifecycleSettings& settings);

// Returns the membership of a running job whose members have never changed.
StoredMembership initial_membership(const kube::Job& job);

// Plans the end of a job's members, whose pods are asked to exit. Newcomers are removed. Members that have lost other
// members, or lose them before they end themselves, form a generation in which they save a checkpoint. REQUIRES that
// the job's phase is Stopping and that the job has a valid membership.
MembersPlan plan_last_members(const JobSituation& situation, const kube::Job& job, const LifecycleSettings& settings);

}  // namespace adaptdl::sched
