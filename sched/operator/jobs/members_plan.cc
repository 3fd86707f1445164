#include "operator/jobs/members_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "kube/api/json_fields.h"

namespace adaptdl::sched {
namespace {

using Role = MembershipState::Role;
using Replica = MembershipState::Replica;
using End = Membership::End;

// This time is longer than the differences between the timeouts of the members' collective calls and requests (see
// kHangWait).
constexpr std::chrono::seconds kHangWaitInCluster{15};
// How long replicas may take to repeat their reports to a new operator.
constexpr std::chrono::seconds kReportsRepeated{60};
// How long a job receives no more replicas after several newcomers have failed in a row.
constexpr std::chrono::minutes kNoGrowth{10};
// How long after the loss of a member other members may still fail because of it.
constexpr std::chrono::seconds kLossFelt{90};
// How long members wait until the pods of the newcomers that replace them are running.
constexpr std::chrono::seconds kReplacementWait{60};

// A failure of a job's program ends the job, so no failure can be survived.
class OperatorBudget final : public FailureBudget {
 public:
  explicit OperatorBudget(BackOff back_off) : back_off_(back_off) {}

  bool spend() override { return false; }
  std::chrono::milliseconds back_off(Time now) override { return back_off_.next(now); }
  const BackOff& state() const noexcept { return back_off_; }

 private:
  BackOff back_off_;
};

class MembersPlanner {
 public:
  MembersPlanner(const JobSituation& situation, const kube::Job& job, const LifecycleSettings& settings)
      : at_(situation),
        job_(job),
        now_(membership_time(situation.now)),
        stored_(parse_membership(situation.job)),
        no_growth_until_(stored_ ? stored_->no_growth_until : std::nullopt),
        budget_(stored_ ? stored_->back_off : BackOff()),
        membership_(make_membership(settings)) {
    membership_.set_follows(follows_generations(situation.hints));
    for (const PodFacts& pod : at_.pods) {
      if (pod.group == job_.group) pods_.emplace(pod.number, &pod);
    }
  }

  MembersPlan run() {
    if (is_done()) return leave_to_end();
    if (is_being_deleted()) {
      plan_.whole = true;
      list_members();
      return result();
    }
    if (at_.decision && may_have(at_.decision->nodes)) set_target(at_.decision->nodes);
    take_reports();
    take_ends();
    if (!plan_.whole && !plan_.failure) act();
    if (!plan_.whole && !plan_.failure && !plan_.restart) release_waiting_leavers();
    return result();
  }

  MembersPlan run_last() {
    stopping_ = true;
    membership_.stop();
    if (is_done()) return leave_to_end();
    take_reports();
    take_ends();
    act();
    return result();
  }

 private:
  Membership make_membership(const LifecycleSettings& settings) {
    // A job that is not preemptible does not survive the loss of a member: the allocator does not replace the job's
    // nodes.
    Membership::Options options{
        .survives = job_.preemptible, .hang_wait = kHangWaitInCluster, .join_limit = settings.start_timeout};
    // After a new operator has taken over, replicas must first report again that their group broke. Until then, none of
    // them is considered hung.
    if (at_.now - at_.leads_since < kReportsRepeated) options.hang_wait = std::chrono::hours(1'000'000);
    const MembershipTarget target{.devices = job_.allocation, .min = min_replicas()};
    return stored_ ? Membership(options, target, budget_, stored_->state) : Membership(options, target, budget_);
  }
  int min_replicas() const { return std::max(job_.min_replicas.value_or(0), 1); }
  // Returns whether the job may have these nodes. For some time after newcomers have failed, it must not receive other
  // nodes.
  bool may_have(const Allocation& nodes) const {
    if (!no_growth_until_ || now_ >= *no_growth_until_) return true;
    std::multiset<std::string> wanted(nodes.begin(), nodes.end());
    for (const std::string& node : membership_.devices()) {
      if (const auto found = wanted.find(node); found != wanted.end()) wanted.erase(found);
    }
    return wanted.empty();
  }
  void set_target(const Allocation& nodes) { membership_.set_target({.devices = nodes, .min = min_replicas()}); }

  const PodFacts* pod_of(int number) const {
    const auto found = pods_.find(number);
    return found == pods_.end() ? nullptr : found->second;
  }
  bool gone(const PodFacts& pod) const { return !pod.node.empty() && at_.node_state(pod.node) == NodeState::kGone; }

  // Returns whether a member that has trained has finished, which means that the others are about to finish.
  bool is_done() const {
    return std::ranges::any_of(membership_.state().replicas, [this](const Replica& replica) {
      const PodFacts* pod = pod_of(replica.number);
      return replica.role == Role::kMember && replica.trained && pod != nullptr && pod->end == PodEnd::kSucceeded;
    });
  }
  // Returns whether something other than this plan deletes a member's pod. All members then save a checkpoint together.
  bool is_being_deleted() const {
    return std::ranges::any_of(membership_.state().replicas, [this](const Replica& replica) {
      const PodFacts* pod = pod_of(replica.number);
      return replica.role == Role::kMember && replica.trained && !replica.killed && pod != nullptr && pod->leaving &&
             !pod->killed && pod->live();
    });
  }

  // Removes all replicas that do not take part in the training, and lets the others end on their own.
  MembersPlan leave_to_end() {
    plan_.whole = true;
    for (const Replica& replica : membership_.state().replicas) {
      const PodFacts* pod = pod_of(replica.number);
      // A leaving replica takes part in the steps until the others are training without it.
      const bool takes_part = replica.role == Role::kMember || (replica.role == Role::kLeaving && !replica.leave_by);
      if (takes_part && replica.trained) {
        plan_.members.push_back(pod);
      } else if (pod != nullptr && pod->live()) {
        remove(*pod, true);
      }
    }
    return result();
  }

  void list_members() {
    for (const int number : membership_.members()) plan_.members.push_back(pod_of(number));
  }

  // Restarts a job whose members are waiting for replacements if the members cannot wait, or if waiting would not help.
  // A replacement may not fit on a node before another job leaves it, or may need a volume or a quota that the members
  // use.
  void release_waiting_leavers() {
    if (!membership_.leavers_wait()) return;
    if (at_.refusal && at_.refusal->quota) {
      plan_.restart = "its replicas cannot be replaced while they run: " + at_.refusal->message;
      return;
    }
    for (const std::string& node : membership_.devices()) {
      if (at_.node_state(node) != NodeState::kLeaving) continue;
      plan_.restart = fmt::format("node '{}' is about to be removed", node);
      return;
    }
    for (const Replica& replica : membership_.state().replicas) {
      const PodFacts* pod = pod_of(replica.number);
      const bool loads = replica.role == Role::kLoading && !replica.killed && pod != nullptr && pod->live();
      if (!loads || pod->running || now_ - replica.started < kReplacementWait) continue;
      if (pod->trouble == PodTrouble::kImage || pod->trouble == PodTrouble::kContainer) continue;
      plan_.restart = fmt::format("its replicas cannot move to node '{}' while they run", replica.device);
      return;
    }
  }

  bool a_member_was_lost() const {
    const Membership::Time lost = budget_.state().failed_at;
    return lost != Membership::Time() && now_ - lost < kLossFelt;
  }

  void take_reports() {
    for (const auto& [number, wait] : at_.reports.waits) {
      if (wait.broken) {
        membership_.broken(number, wait.after, now_);
      } else {
        membership_.waits(number, now_);
      }
    }
    if (at_.reports.trains != membership_.generation()) return;
    for (const int number : membership_.members()) membership_.trains(number, membership_.generation());
  }

  void take_ends() {
    if (at_.refusal) {
      membership_.ended(*at_.refusal->replica, End::kFailed, now_);
      plan_.events.push_back({true, "FailedCreate", at_.refusal->message});
    }
    const std::vector<Replica> replicas = membership_.state().replicas;
    for (const Replica& replica : replicas) {
      const std::optional<End> end = end_of(replica);
      const bool failed = end == End::kFailed && !stopping_;
      if (failed && replica.role == Role::kMember && replica.trained && a_member_was_lost()) {
        plan_.failure = fmt::format("replica number {} failed after another replica was lost", replica.number);
        return;
      }
      if (failed && replica.role != Role::kMember && replica.role != Role::kLeaving) {
        const PodFacts* pod = pod_of(replica.number);
        plan_.events.push_back({true, "ReplicaFailed",
                                fmt::format("replica number {} failed while joining the job{}", replica.number,
                                            pod == nullptr || pod->message.empty() ? "" : ": " + pod->message)});
      }
      if (!end || membership_.ended(replica.number, *end, now_) || stopping_) continue;
      // The other members cannot survive this end, so the caller must check whether the group as a whole has ended.
      plan_.whole = true;
      for (const Replica& each : replicas) {
        if (each.role == Role::kMember) plan_.members.push_back(pod_of(each.number));
      }
      return;
    }
  }

  std::optional<End> end_of(const Replica& replica) const {
    const PodFacts* pod = pod_of(replica.number);
    if (stopping_ && replica.role == Role::kMember) {
      // The pods of a job that is stopping are deleted, and may disappear before it is known how they ended. Members
      // that have not met the other members in this generation yet cannot have saved a checkpoint.
      const bool met = membership_.generation() == 0 || replica.trains == membership_.generation();
      if (pod == nullptr) return met ? End::kCheckpointed : End::kKilled;
      if (pod->end == PodEnd::kCheckpointed) return End::kCheckpointed;
      // The others may wait for the failed member, so it is treated as killed.
      if (pod->end == PodEnd::kFailed) return End::kKilled;
    }
    if (pod == nullptr) {
      // The pod has not been created yet, or was deleted and can be created again.
      if (replica.role == Role::kLoading && !replica.killed) return {};
      return replica.role == Role::kLeaving ? End::kDone : End::kKilled;
    }
    if (gone(*pod) || pod->killed) return End::kKilled;
    // A replica that has not trained has nothing to save, and may not end on its own.
    if (pod->leaving && pod->live() && !replica.trained && !stopping_) return End::kKilled;
    switch (pod->end) {
      case PodEnd::kNone:
        return {};
      case PodEnd::kSucceeded:
        return End::kDone;
      case PodEnd::kCheckpointed:
        return End::kCheckpointed;
      case PodEnd::kLost:
        // The node may have refused the pod of a newcomer, and would refuse the next one, too.
        return replica.role == Role::kMember ? End::kKilled : End::kFailed;
      case PodEnd::kFailed:
        return pod->unhealthy_device ? End::kKilled : End::kFailed;
    }
    return {};
  }

  void act() {
    for (const MembershipAction& action : membership_.decide(now_)) {
      switch (action.kind) {
        case MembershipAction::Kind::kStart:
          break;  // the creation of its pod is planned below
        case MembershipAction::Kind::kIssue:
          plan_.changed = true;
          if (!stopping_) plan_.events.push_back({false, "Rescaled", action.why});
          break;
        case MembershipAction::Kind::kKill:
          if (stopping_ && !action.hung) break;
          plan_.events.push_back(
              {true, "ReplicaStopped", fmt::format("replica number {}: {}", action.replica, action.why)});
          break;
        case MembershipAction::Kind::kGiveUp:
          plan_.events.push_back({true, "ReplicaStopped", action.why});
          break;
        case MembershipAction::Kind::kRestart:
          plan_.restart = action.why;
          break;
        case MembershipAction::Kind::kFail:
          plan_.failure = action.why;
          break;
        case MembershipAction::Kind::kNotice:
          plan_.events.push_back({true, "Rescaled", action.why});
          // Other jobs may be able to use the nodes of newcomers that fail.
          set_target(membership_.devices());
          no_growth_until_ = now_ + kNoGrowth;
          break;
      }
    }
    for (const Replica& replica : membership_.state().replicas) {
      const PodFacts* pod = pod_of(replica.number);
      if (replica.role == Role::kLoading && !replica.killed && pod == nullptr) plan_.missing.push_back(replica.number);
      // The removal of the pod is requested repeatedly until the pod has ended, because a request may be lost.
      if (replica.killed && pod != nullptr && pod->live()) remove(*pod, true);
    }
    list_members();
    rank_members();
  }

  // Plans updates of the members' annotations, and sets the generation to announce.
  void rank_members() {
    generation::Generation generation{.number = membership_.generation(), .replicas = {}};
    const auto count = static_cast<int>(plan_.members.size());
    for (int rank = 0; rank < count; ++rank) {
      const PodFacts* pod = plan_.members[static_cast<std::size_t>(rank)];
      if (pod == nullptr) continue;
      if (pod->rank != rank || pod->replicas != count)
        plan_.ranks.push_back({pod->name, pod->uid, pod->number, rank, count});
      if (pod->ip.empty()) continue;
      generation.replicas.push_back({.id = replica_id(pod->group, pod->number),
                                     .address = pod->ip,
                                     .port = master_port(pod->group, membership_.generation())});
    }
    const bool all = static_cast<int>(generation.replicas.size()) == count && count > 0;
    if (all && generation.number > 0 && !membership_.state().incomplete) plan_.generation = std::move(generation);
  }

  void remove(const PodFacts& pod, bool force) {
    if (pod.leaving && !gone(pod) && (!force || pod.killed)) return;
    plan_.removals.push_back({pod.name, pod.uid, force || gone(pod)});
  }

  MembersPlan result() {
    plan_.membership = {membership_.state(), budget_.state(), no_growth_until_};
    const auto& replicas = membership_.state().replicas;
    plan_.steady = membership_.steady() && !membership_.state().broken_since &&
                   std::ranges::find(replicas, Role::kLeaving, &Replica::role) == replicas.end();
    plan_.nodes = membership_.devices();
    plan_.target = plan_.steady ? plan_.nodes : membership_.target().devices;
    return std::move(plan_);
  }

  const JobSituation& at_;
  const kube::Job& job_;
  const Membership::Time now_;
  const std::optional<StoredMembership> stored_;
  std::optional<Membership::Time> no_growth_until_;
  OperatorBudget budget_;
  Membership membership_;
  bool stopping_ = false;                // whether the job's phase is Stopping
  std::map<int, const PodFacts*> pods_;  // pods of the group, by replica number
  MembersPlan plan_;
};

}  // namespace

bool follows_generations(const nlohmann::json& hints) { return kube::bool_field(hints, {"liveRescale"}, false); }

PodPlace place_of(const nlohmann::json& job, int number) {
  const kube::Job parsed = kube::parse_job(job);
  PodPlace place{.nodes = parsed.allocation, .group = parsed.group.value_or(0), .rank = number, .number = number};
  const auto stored = parse_membership(job);
  if (!stored) return place;
  // The replica joins the members after the other newcomers.
  place.nodes.clear();
  place.generation = stored->state.generation + 1;
  for (const Role role : {Role::kMember, Role::kWaiting, Role::kLoading}) {
    for (const Replica& replica : stored->state.replicas) {
      if (replica.role != role || replica.killed) continue;
      if (replica.number == number) place.rank = static_cast<int>(place.nodes.size());
      place.nodes.push_back(replica.device);
    }
  }
  return place;
}

MembersPlan plan_members(const JobSituation& situation, const kube::Job& job, const LifecycleSettings& settings) {
  return MembersPlanner(situation, job, settings).run();
}

MembersPlan plan_last_members(const JobSituation& situation, const kube::Job& job, const LifecycleSettings& settings) {
  return MembersPlanner(situation, job, settings).run_last();
}

StoredMembership initial_membership(const kube::Job& job) {
  OperatorBudget budget({});
  return {.state = Membership({}, {.devices = job.allocation}, budget).state(), .back_off = {}, .no_growth_until = {}};
}

}  // namespace adaptdl::sched
