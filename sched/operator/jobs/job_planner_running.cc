#include "operator/jobs/job_planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "kube/api/json_fields.h"
#include "membership/membership_limits.h"
#include "operator/jobs/group_end.h"
#include "operator/jobs/members_plan.h"

namespace adaptdl::sched {
namespace {

using kube::field;
using kube::Time;
using nlohmann::json;

}  // namespace

void JobPlanner::watch_group() {
  if (at_.refusal && !at_.refusal->replica) return refused(*at_.refusal);
  // This happens only if another client has changed the status.
  if (last_group() < 0) return stop("Reallocated", "invalid status.group: expected a non-negative integer", {}, false);
  if (job_.phase == "Starting" && !field(at_.job, {"status", "membership"}).is_null()) {
    status_.set_membership(json());
    membership_.reset();
  }
  if (job_.phase == "Running" && may_change_members()) {
    if (settings_.live_rescale) return watch_members();
    return stop("Reallocated", "live rescale was disabled", if_open(job_.allocation, false), false);
  }
  collect();
  if (replicas_.empty() || replicas_.size() != job_.allocation.size())
    return stop("Reallocated", "status.allocation and status.replicas differ", {}, false);
  if (succeeded() || ended()) return;
  if (at_.decision && at_.decision->nodes != job_.allocation) {
    if (!may_follow_soon()) return reallocate();
  } else if (at_.decision) {
    status_.set_reason("Allocated", at_.decision->reason);
  }
  if (std::ranges::any_of(others_, [this](const PodFacts* pod) { return live(*pod); })) return;
  report();
}

bool JobPlanner::is_followed() const { return follows_generations(at_.hints) && at_.reports.trains >= 0; }

bool JobPlanner::may_follow_soon() const {
  const bool silent = at_.hints.empty() || (follows_generations(at_.hints) && !is_followed());
  // Hints are stored in the status, whereas replicas must repeat other reports to a new operator.
  const Time since = at_.hints.empty() ? status_.phase_since() : std::max(status_.phase_since(), at_.leads_since);
  return settings_.live_rescale && job_.phase == "Running" && silent && at_.now - since < kSilence &&
         !at_.decision->nodes.empty() && !if_open(job_.allocation, true).empty();
}

bool JobPlanner::may_change_members() const {
  return field(at_.job, {"status", "membership"}).is_object() || (settings_.live_rescale && is_followed());
}

void JobPlanner::watch_members() {
  if (at_.decision && at_.decision->nodes.empty()) return reallocate();
  MembersPlan members;
  try {
    members = plan_members(at_, job_, settings_);
  } catch (const Error& error) {
    return stop("Reallocated", error.what(), {}, false);
  }
  for (const PodFacts& pod : at_.pods) {
    const auto is_pod = [&](const MembershipState::Replica& replica) { return replica.number == pod.number; };
    const bool listed = pod.group == job_.group && std::ranges::any_of(members.membership.state.replicas, is_pod);
    if (!listed && std::ranges::find(members.members, &pod) == members.members.end()) remove(pod);
  }
  take_changes(members);
  replicas_ = std::move(members.members);
  if (members.whole && (succeeded() || ended())) return;
  if (members.failure) return stop("ReplicaLost", *members.failure, if_open(job_.allocation, false), true);
  if (members.restart) return stop("Reallocated", *members.restart, if_open(members.target, true), false);
  if (!members.missing.empty() && members.target.size() > max_replicas()) return stop_excess();
  if (at_.decision) status_.set_reason("Allocated", at_.decision->reason);
  if (!members.whole) {
    if (membership_ || !members.steady || members.changed) status_.set_membership(to_json(members.membership));
    status_.set_allocation(members.target);
    status_.set_members(static_cast<int>(replicas_.size()));
    plan_.missing = std::move(members.missing);
    plan_.ranks = std::move(members.ranks);
    plan_.generation = std::move(members.generation);
    if (!members.steady) look_again(at_.now + kMembersCheck);
  }
  status_.set_ready(static_cast<int>(
      std::ranges::count_if(replicas_, [](const PodFacts* pod) { return pod != nullptr && pod->running; })));
}

bool JobPlanner::ended() {
  const bool all_created = job_.phase == "Running" || status_.created();
  const GroupEnd end = group_end(at_, job_, replicas_, all_created);
  if (end.look_again) look_again(*end.look_again);
  // The job restarts on the same nodes if all of them are ready and no pause is due.
  if (end.kind == GroupEnd::Kind::kRestart) stop(end.reason, end.message, if_open(job_.allocation, false), true);
  if (end.kind == GroupEnd::Kind::kFailed) fail(end.reason, end.message);
  return end.kind != GroupEnd::Kind::kNone;
}

void JobPlanner::reallocate() {
  const JobDecision& decision = *at_.decision;
  stop(job_.suspend ? kSuspended : "Reallocated", decision.reason, if_open(decision.nodes, true), false);
}

void JobPlanner::refused(const PodRefusal& refusal) {
  add_event(true, "FailedCreate", refusal.message);
  if (refusal.quota) {
    stop("QuotaExceeded", refusal.message, {}, true, kFirstPause);
  } else {
    fail("PodRefused", refusal.message);
  }
}

void JobPlanner::stop_excess() {
  stop("Reallocated", "status.allocation lists more replicas than the job may have", {}, false);
}

void JobPlanner::report() {
  int ready = 0, running = 0;
  bool addresses = true;
  for (std::size_t rank = 0; rank < replicas_.size(); ++rank) {
    const PodFacts* pod = replicas_[rank];
    if (pod == nullptr) {
      plan_.missing.push_back(static_cast<int>(rank));
      addresses = false;
      continue;
    }
    ready += pod->running ? 1 : 0;
    running += pod->running || pod->end == PodEnd::kSucceeded ? 1 : 0;
    addresses = addresses && !pod->ip.empty();
    plan_.addresses.push_back(pod->ip);
  }
  if (!addresses) plan_.addresses.clear();
  if (!plan_.missing.empty() && job_.allocation.size() > max_replicas()) return stop_excess();
  if (plan_.missing.empty()) status_.set_created();
  status_.set_ready(ready);
  if (job_.phase == "Running") return;
  if (running == static_cast<int>(replicas_.size())) {
    status_.set_phase("Running", "Allocated", status_.message());
    add_event(false, "Running", fmt::format("{} running", counted(ready, "replica")));
  } else {
    check_start();
  }
}

void JobPlanner::check_start() {
  const PodFacts* troubled = nullptr;
  for (const PodFacts* pod : replicas_) {
    if (pod != nullptr && pod->trouble != PodTrouble::kNone && troubled == nullptr) troubled = pod;
  }
  const Time end = status_.trouble_since(troubled != nullptr) + settings_.start_timeout;
  if (troubled == nullptr) return;
  if (end > at_.now) return look_again(end);
  const std::string what = fmt::format("replica {}: {}", troubled->rank, troubled->message);
  switch (troubled->trouble) {
    case PodTrouble::kImage:
      return fail("ImagePullFailed", what);
    case PodTrouble::kContainer:
      return fail("ContainerFailed", what);
    case PodTrouble::kVolume:
      return fail("VolumeUnavailable", what);
    case PodTrouble::kUnscheduled:
    case PodTrouble::kNone:
      return stop("Unschedulable", what, {}, true);
  }
}

}  // namespace adaptdl::sched
