#include "operator/jobs/lifecycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"
#include "membership/membership_limits.h"
#include "operator/jobs/group_end.h"
#include "operator/jobs/job_status.h"
#include "operator/jobs/members_plan.h"
#include "operator/jobs/usage_account.h"
#include "policy/base/wording.h"

namespace adaptdl::sched {
namespace {

using kube::field;
using kube::Time;
using nlohmann::json;
using std::chrono::seconds;

// A group that ran at least this long ends a series of failed starts.
constexpr seconds kSettled{60};
// Group numbers in a status must be below this limit, because no job is started this many times.
constexpr int kMaxGroups = 1'000'000;
// The interval of checks while the members of a job change. They are necessary because no event reports that a change
// takes too long.
constexpr seconds kMembersCheck{1};
constexpr seconds kFirstPause{10};
// Reasons in a status. kSuspended is also a phase.
constexpr const char *kSuspended = "Suspended", *kResumed = "Resumed";
constexpr const char *kWhySuspended = "suspended by spec.suspend", *kWhyResumed = "resumed; waiting for nodes";

class Planner {
 public:
  Planner(const JobSituation& situation, const LifecycleSettings& settings)
      : at_(situation),
        settings_(settings),
        job_(kube::parse_job(situation.job)),
        status_(situation.job, situation.now) {
    try {
      membership_ = parse_membership(situation.job);
    } catch (const Error&) {
      // watch_members() restarts the group.
    }
  }

  Plan run() {
    // Kubernetes deletes the pods of a job that is being deleted. Because of finalizers, the job may exist longer than
    // its pods.
    if (job_.deleted) {
      account_usage(at_, job_, membership_.has_value(), status_);
      plan_.status = status_.patch();
      return std::move(plan_);
    }
    if (correct_group()) {
      plan_.status = status_.patch();
      return std::move(plan_);
    }
    status_.set_hints(at_.hints);
    account_usage(at_, job_, membership_.has_value(), status_);
    if (!job_.suspend) note_resumption();
    if (job_.phase == "Succeeded" || job_.phase == "Failed") {
      remove_live();
    } else if (job_.phase == "Starting" || job_.phase == "Running") {
      watch_group();
    } else if (job_.phase == "Stopping") {
      stopping();
    } else {
      pending();
    }
    plan_.status = status_.patch();
    return std::move(plan_);
  }

 private:
  bool live(const PodFacts& pod) const { return pod.live() && !is_gone(at_, pod); }

  void remove(const PodFacts& pod) {
    // A terminating pod need not be deleted again, unless its node is gone and nothing else would remove the pod.
    if (pod.leaving && !is_gone(at_, pod)) return;
    if (std::ranges::find(plan_.removals, pod.uid, &PodRemoval::uid) != plan_.removals.end()) return;
    plan_.removals.push_back({pod.name, pod.uid, is_gone(at_, pod)});
  }
  // Returns the number of the last group of pods; -1 if there was none.
  int last_group() const {
    const int stored = job_.group.value_or(-1);
    int last = stored < kMaxGroups ? std::max(stored, -1) : -1;
    for (const PodFacts& pod : at_.pods) last = std::max(last, pod.group);
    return last;
  }
  // Corrects the group if another client has changed it, so that no number is used twice. Returns whether the next step
  // must begin with the corrected group.
  bool correct_group() {
    const int group = last_group();
    if (job_.ended() || group < 0 || group == job_.group) return false;
    status_.set_group(group);
    return job_.phase == "Starting" || job_.phase == "Running" || job_.phase == "Stopping";
  }
  // Removes all pods that have not ended. Returns whether any pod may still run.
  bool remove_live() {
    bool any = false;
    for (const PodFacts& pod : at_.pods) {
      if (pod.live()) remove(pod);
      any = any || live(pod);
    }
    return any;
  }

  void look_again(Time when) { plan_.look_again = plan_.look_again ? std::min(*plan_.look_again, when) : when; }
  void tell(bool warning, const std::string& reason, const std::string& message) {
    plan_.events.push_back({warning, reason, message});
  }

  // Returns the nodes, or no nodes if there is one among them on which the job must not be started. Nodes that the
  // allocator chose (`chosen`) include cordoned nodes only if the job tolerates the cordon.
  Allocation if_open(const Allocation& nodes, bool chosen) const {
    const auto open = [this, chosen](const std::string& node) {
      const NodeState state = at_.node_state(node);
      return state == NodeState::kReady || (chosen && state == NodeState::kCordoned);
    };
    return std::ranges::all_of(nodes, open) ? nodes : Allocation();
  }
  std::size_t max_replicas() const {
    const int max = std::max(job_.max_replicas.value_or(kMaxReplicasPerJob), job_.min_replicas.value_or(0));
    return static_cast<std::size_t>(std::clamp(max, 1, kMaxReplicasPerJob));
  }
  // Returns the nodes that the job must run on next.
  Allocation next_nodes() const {
    if (at_.decision) return if_open(at_.decision->nodes, true);
    if (job_.allocation.size() > max_replicas()) return {};
    return if_open(job_.allocation, status_.reason() == "Reallocated");
  }

  // ---- Pending, Suspended

  void pending() {
    if (job_.phase.empty()) status_.set_phase("Pending", "New", "waiting for nodes");
    if (remove_live()) return;
    if (job_.suspend) return suspend();
    if (const auto hold = status_.retry_after(); hold && *hold > at_.now) {
      status_.set_allocation({});
      look_again(*hold);
      return;
    }
    status_.end_pause();  // changes the status, which wakes the allocator
    if (const Allocation nodes = next_nodes(); !nodes.empty()) {
      start(nodes);
    } else {
      status_.set_allocation({});
      if (!at_.decision) return;
      note_waiting(*at_.decision);
      check_placeable();
    }
  }

  // REQUIRES that no pod of the job may still run.
  void suspend() {
    note_suspension();
    status_.set_allocation({});
    status_.set_unplaceable(false);
    if (job_.phase != kSuspended) status_.set_phase(kSuspended, kSuspended, kWhySuspended);
  }
  void note_suspension() {
    if (status_.reason() == kSuspended) return;
    status_.set_reason(kSuspended, kWhySuspended);
    tell(false, kSuspended, kWhySuspended);
  }
  // If a job is resumed before all of its replicas have ended, it first waits for them to end.
  void note_resumption() {
    const bool stops = job_.phase == "Stopping" && status_.reason() == kSuspended;
    if (!stops && job_.phase != kSuspended) return;
    if (!stops) status_.set_phase("Pending", kResumed, kWhyResumed);
    status_.set_reason(kResumed, kWhyResumed);
    tell(false, kResumed, kWhyResumed);
  }

  void note_waiting(const JobDecision& decision) {
    status_.set_reason(decision.placeable ? "Waiting" : "Unschedulable", decision.reason);
    status_.set_unplaceable(!decision.placeable);
  }

  void check_placeable() {
    const auto since = status_.unplaceable_since();
    if (!since || settings_.unschedulable_timeout.count() == 0) return;
    const Time end = *since + settings_.unschedulable_timeout;
    if (end > at_.now) {
      look_again(end);
      return;
    }
    constexpr std::string_view kWaits = "waits: ";
    std::string why = status_.message();
    if (why.starts_with(kWaits)) why.erase(0, kWaits.size());
    fail("Unschedulable", why);
  }

  void start(const Allocation& nodes) {
    const int group = last_group() + 1;
    const std::set<std::string> names(nodes.begin(), nodes.end());
    const std::string size = counted(nodes.size(), "replica") + " on " + counted(names.size(), "node");
    const std::string why = at_.decision                        ? at_.decision->reason
                            : status_.reason() == "Reallocated" ? status_.message()
                                                                : size + ": restarted";
    status_.set_unplaceable(false);
    status_.start(group, nodes, why);
    plan_.starts = true;
    tell(false, "Starting", fmt::format("{}, group {}", size, group));
  }

  // ---- Starting, Running

  void watch_group() {
    if (at_.refusal && !at_.refusal->replica) return refused(*at_.refusal);
    // This happens only if another client has changed the status.
    if (last_group() < 0)
      return stop("Reallocated", "invalid status.group: expected a number of at least 0", {}, false);
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

  // Returns whether the replicas of this group follow generations. The hint alone may be from an earlier group.
  bool is_followed() const { return follows_generations(at_.hints) && at_.reports.trains >= 0; }

  // Returns whether a job that has just started may still report that it follows generations. Until then, a change that
  // can wait for the next cycle must not restart the job.
  bool may_follow_soon() const {
    const bool silent = at_.hints.empty() || (follows_generations(at_.hints) && !is_followed());
    // Hints are stored in the status, whereas replicas must repeat other reports to a new operator.
    const Time since = at_.hints.empty() ? status_.phase_since() : std::max(status_.phase_since(), at_.leads_since);
    return settings_.live_rescale && job_.phase == "Running" && silent && at_.now - since < kSilence &&
           !at_.decision->nodes.empty() && !if_open(job_.allocation, true).empty();
  }

  bool may_change_members() const {
    return field(at_.job, {"status", "membership"}).is_object() || (settings_.live_rescale && is_followed());
  }

  void watch_members() {
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

  void take_changes(MembersPlan& members) {
    for (PodRemoval& removal : members.removals) plan_.removals.push_back(std::move(removal));
    for (JobEvent& event : members.events) plan_.events.push_back(std::move(event));
  }

  // Collects the pods of the group by number, which is the rank here, and removes all other pods.
  void collect() {
    replicas_.assign(static_cast<std::size_t>(std::clamp(job_.replicas.value_or(0), 0, kMaxReplicasPerJob)), nullptr);
    for (const PodFacts& pod : at_.pods) {
      const int rank = pod.group == job_.group ? pod.number : -1;
      if (rank >= 0 && rank < static_cast<int>(replicas_.size())) {
        replicas_[static_cast<std::size_t>(rank)] = &pod;
      } else {
        others_.push_back(&pod);
        remove(pod);
      }
    }
  }

  bool succeeded() {
    const bool all = !replicas_.empty() && std::ranges::all_of(replicas_, [](const PodFacts* pod) {
      return pod != nullptr && pod->end == PodEnd::kSucceeded;
    });
    if (!all) return false;
    status_.finish("Succeeded", "Completed", "");
    tell(false, "Succeeded", "all replicas exited with code 0");
    return true;
  }

  // Restarts or fails the job if its replicas make that necessary. Returns whether all other actions must wait.
  bool ended() {
    const bool all_created = job_.phase == "Running" || status_.created();
    const GroupEnd end = group_end(at_, job_, replicas_, all_created);
    if (end.look_again) look_again(*end.look_again);
    // The job restarts on the same nodes if all of them are ready and no pause is due.
    if (end.kind == GroupEnd::Kind::kRestart) stop(end.reason, end.message, if_open(job_.allocation, false), true);
    if (end.kind == GroupEnd::Kind::kFailed) fail(end.reason, end.message);
    return end.kind != GroupEnd::Kind::kNone;
  }

  void reallocate() {
    const JobDecision& decision = *at_.decision;
    stop(job_.suspend ? kSuspended : "Reallocated", decision.reason, if_open(decision.nodes, true), false);
  }

  void refused(const PodRefusal& refusal) {
    tell(true, "FailedCreate", refusal.message);
    if (refusal.quota) {
      stop("QuotaExceeded", refusal.message, {}, true, kFirstPause);
    } else {
      fail("PodRefused", refusal.message);
    }
  }

  void stop_excess() { stop("Reallocated", "status.allocation lists more replicas than the job may have", {}, false); }

  // Plans the creation of missing pods and updates the number of ready replicas and the phase.
  void report() {
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
      tell(false, "Running", fmt::format("{} running", counted(ready, "replica")));
    } else {
      check_start();
    }
  }

  void check_start() {
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

  // ---- Stopping

  // `pause`: whether the job must pause if stops for such reasons are repeated. `wait`: the minimum pause.
  void stop(const std::string& reason, const std::string& message, const Allocation& next, bool pause,
            seconds wait = {}) {
    const seconds stayed = std::chrono::duration_cast<seconds>(at_.now - status_.phase_since());
    const bool settled = job_.phase == "Running" && stayed >= kSettled;
    const int retries = !pause ? status_.retries() : settled ? 0 : status_.retries() + 1;
    if (pause && retries > 1)
      wait = std::max(wait, std::min(kFirstPause * (1 << std::min(retries - 2, 10)), kMaxPause));
    // During a pause, the allocator may allocate the job's nodes to other jobs.
    status_.stop(reason, message, wait.count() > 0 ? Allocation() : next, retries, wait);
    // The hint may be from an earlier group. This is harmless, because in that case, no replica requests a generation.
    const bool unchanged = field(at_.job, {"status", "membership"}).is_null();
    if (unchanged && job_.phase == "Running" && follows_generations(at_.hints))
      status_.set_membership(to_json(initial_membership(job_)));
    tell(pause, reason, message);
    plan_.missing.clear();
    plan_.addresses.clear();
  }

  void stopping() {
    if (membership_) {
      follow_last_members();
    } else {
      collect();
    }
    if (succeeded()) return;
    const PodFacts* const unconfirmed = on_lost_node();
    if (unconfirmed != nullptr) {
      // Nodes would be idle if they were allocated to the job before its pods have ended.
      status_.set_allocation({});
      status_.set_reason("NodeLost",
                         fmt::format("waiting for node {}, which is not ready, to confirm that replica {} has ended",
                                     unconfirmed->node, unconfirmed->rank));
      look_again(at_.now + kNodeCheck);
    } else if (at_.decision) {
      status_.set_allocation(next_nodes());
      if (job_.suspend) note_suspension();
      if (status_.reason() == "Reallocated" || status_.reason() == kResumed)
        status_.set_reason("Reallocated", at_.decision->reason);
    }
    if (remove_live()) return;
    if (job_.suspend) return suspend();
    const auto hold = status_.retry_after();
    const Allocation nodes = next_nodes();
    if ((hold && *hold > at_.now) || nodes.empty()) {
      status_.set_allocation({});
      status_.set_phase("Pending", status_.reason(), status_.message());
      if (at_.decision && nodes.empty()) note_waiting(*at_.decision);
    } else {
      start(nodes);
    }
  }

  void follow_last_members() {
    MembersPlan members = plan_last_members(at_, job_, settings_);
    take_changes(members);
    replicas_ = std::move(members.members);
    plan_.generation = std::move(members.generation);
    status_.set_membership(to_json(members.membership));
    const MembershipState& state = members.membership.state;
    if (state.broken_since || state.finished_at) look_again(at_.now + kMembersCheck);
  }

  const PodFacts* on_lost_node() const {
    for (const PodFacts& pod : at_.pods) {
      if (live(pod) && !pod.node.empty() && !responds(at_, pod.node)) return &pod;
    }
    return nullptr;
  }

  void fail(const std::string& reason, const std::string& message) {
    status_.finish("Failed", reason, message);
    tell(true, reason, message);
    plan_.missing.clear();
    plan_.addresses.clear();
  }

  const JobSituation& at_;
  const LifecycleSettings& settings_;
  const kube::Job job_;
  JobStatus status_;
  std::optional<StoredMembership> membership_;
  std::vector<const PodFacts*> replicas_, others_;
  Plan plan_;
};

}  // namespace

Plan plan_job(const JobSituation& situation, const LifecycleSettings& settings) {
  if (!kube::bool_field(situation.job, {"spec", "suspend"}, false)) return Planner(situation, settings).run();
  // A suspended job must wait, regardless of any decision that the allocator made before it knew of the suspension.
  JobSituation suspended = situation;
  suspended.decision = JobDecision{{}, kWhySuspended, true, ""};
  return Planner(suspended, settings).run();
}

}  // namespace adaptdl::sched
