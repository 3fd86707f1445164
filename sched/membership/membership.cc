#include "membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace adaptdl::sched {
namespace {

using Kind = MembershipAction::Kind;

// Removes one occurrence of the device from the list. Returns false if there is none.
bool take_device(std::vector<std::string>& devices, const std::string& device) {
  const auto found = std::ranges::find(devices, device);
  if (found == devices.end()) return false;
  devices.erase(found);
  return true;
}

std::string replicas(std::size_t count) { return fmt::format("{} replica{}", count, count == 1 ? "" : "s"); }

}  // namespace

Membership::Membership(Options options, MembershipTarget target, FailureBudget& budget)
    : options_(options), budget_(&budget) {
  state_.can_join = options.can_join;
  for (const std::string& device : target.devices) {
    state_.replicas.push_back({.number = state_.next++, .device = device, .role = Role::kMember, .trained = true});
  }
  set_target(std::move(target));
}

Membership::Membership(Options options, MembershipTarget target, FailureBudget& budget, MembershipState state)
    : options_(options), target_(target), budget_(&budget), state_(std::move(state)) {
  set_target(std::move(target));
}

void Membership::set_target(MembershipTarget target) {
  target.min = std::clamp(target.min, 1, std::max(1, static_cast<int>(target.devices.size())));
  // A target remains a user's request until it is reached.
  target.by_user = target.by_user || (target_.by_user && target.devices == target_.devices);
  if (target.devices != target_.devices) state_.newcomer_failures = 0;
  target_ = std::move(target);
}

Membership::Replica* Membership::find(int replica) {
  const auto found = std::ranges::find(state_.replicas, replica, &Replica::number);
  return found == state_.replicas.end() ? nullptr : &*found;
}

const Membership::Replica* Membership::find(int replica) const { return const_cast<Membership*>(this)->find(replica); }

std::size_t Membership::count(Role role) const {
  return static_cast<std::size_t>(std::ranges::count_if(state_.replicas, [role](const Replica& replica) {
    return replica.role == role && (role == Role::kMember || !replica.killed);
  }));
}

std::vector<int> Membership::members() const {
  std::vector<int> result;
  for (const Replica& replica : state_.replicas) {
    if (replica.role == Role::kMember) result.push_back(replica.number);
  }
  return result;
}

std::vector<std::string> Membership::devices() const {
  std::vector<std::string> result;
  for (const Replica& replica : state_.replicas) {
    if (replica.role == Role::kMember) result.push_back(replica.device);
  }
  return result;
}

bool Membership::is_member(int replica) const {
  const Replica* found = find(replica);
  return found != nullptr && found->role == Role::kMember;
}

bool Membership::is_newcomer(int replica) const {
  const Replica* found = find(replica);
  return found != nullptr && (found->role == Role::kLoading || found->role == Role::kWaiting);
}

bool Membership::settled() const {
  return std::ranges::all_of(state_.replicas, [this](const Replica& replica) {
    return replica.role != Role::kMember || replica.trains == state_.generation;
  });
}

// Members that were listed but have not begun to train have no state to continue from.
bool Membership::a_member_has_trained() const {
  return std::ranges::any_of(state_.replicas,
                             [](const Replica& replica) { return replica.role == Role::kMember && replica.trained; });
}

bool Membership::can_save_without(int replica) const {
  const bool ends = is_member(replica) && !options_.survives && !stopping_ && !state_.finished_at;
  return ends && options_.can_restart && follows_ == true && progressed_at_ &&
         std::ranges::any_of(state_.replicas, [&](const Replica& other) {
           return other.number != replica && other.role == Role::kMember && other.trained && !other.killed;
         });
}

bool Membership::a_member_dies() const {
  return std::ranges::any_of(state_.replicas,
                             [](const Replica& replica) { return replica.role == Role::kMember && replica.killed; });
}

bool Membership::steady() const {
  const Difference difference = this->difference();
  return !state_.regroup && (settled() || state_.generation == 0) && difference.leavers.empty() &&
         difference.missing.empty();
}

bool Membership::leavers_wait() const {
  const Difference difference = this->difference();
  const std::size_t staying = count(Role::kMember) - difference.leavers.size();
  return !difference.leavers.empty() && !difference.missing.empty() && staying < static_cast<std::size_t>(target_.min);
}

void Membership::progressed(Time now) {
  if (!progressed_at_) progressed_at_ = now;
}

bool Membership::known_not_to_follow(Time now) const {
  if (follows_) return !*follows_;
  return (progressed_at_ && now - *progressed_at_ >= kHintWait) || (began_at_ && now - *began_at_ >= kSilence);
}

bool Membership::is_stuck(Time now) const {
  return !options_.can_restart && (known_not_to_follow(now) || (follows_ == true && !state_.can_join));
}

void Membership::waits(int replica, Time) {
  Replica* newcomer = find(replica);
  if (newcomer != nullptr && newcomer->role == Role::kLoading) newcomer->role = Role::kWaiting;
}

void Membership::broken(int replica, int generation, Time now) {
  Replica* member = find(replica);
  if (member == nullptr || member->role != Role::kMember || generation != state_.generation) return;
  member->broken = true;
  // A newcomer's report is ignored: its group may have broken only because the other members are still in a long step,
  // or saving a checkpoint, in the previous generation.
  if (!state_.broken_since && member->trained) state_.broken_since = now;
}

void Membership::trains(int replica, int generation) {
  Replica* member = find(replica);
  if (member == nullptr) return;
  member->trains = std::max(member->trains, generation);
  if (!std::exchange(member->trained, true)) state_.newcomer_failures = 0;
}

void Membership::cannot_join(int replica) {
  if (find(replica) != nullptr) state_.can_join = false;
}

void Membership::newcomer_failed(Time now) {
  state_.start_after = now + budget_->back_off(now);
  ++state_.newcomer_failures;
}

bool Membership::ended(int replica, End end, Time now) {
  const auto found = std::ranges::find(state_.replicas, replica, &Replica::number);
  if (found == state_.replicas.end()) return true;
  const Replica gone = std::move(*found);
  state_.replicas.erase(found);
  if (gone.role == Role::kMember) {
    state_.incomplete = true;
    const bool survived = member_ended(gone, end, now);
    if (stopping_ && gone.trained && !a_member_has_trained() && !state_.finished_at) state_.finished_at = now;
    return survived;
  }
  // A newcomer that was killed because it was not needed has not failed. A newcomer that was killed because it was late
  // has failed.
  const bool unneeded = gone.killed && !gone.late;
  if (gone.role == Role::kLeaving || unneeded || stopping_) return true;
  newcomer_failed(now);
  // If something outside the job killed the newcomer, the next newcomer may succeed.
  if (end == End::kKilled && !gone.killed) --state_.newcomer_failures;
  return true;
}

bool Membership::member_ended(const Replica& gone, End end, Time now) {
  if (end == End::kDone) {
    if (!state_.finished_at) state_.finished_at = now;
    return false;
  }
  // The replica joined when the work was done, and the others finished without it.
  if (state_.finished_at && !gone.trained) return true;
  if (end == End::kCheckpointed || given_up_ || state_.finished_at || (!options_.survives && !stopping_)) return false;
  const bool never_joined = stopping_ && !gone.trained;
  // A failure while the job stops may be a failure to save the checkpoint.
  if (stopping_ && end == End::kFailed && !never_joined) return false;
  // Any number of members can save a checkpoint.
  const bool enough = stopping_ || count(Role::kMember) >= static_cast<std::size_t>(target_.min);
  if (follows_ != true || !a_member_has_trained() || (!enough && !state_.can_join)) return never_joined;
  // The death of a member that was listed but had not begun to train is not charged to the budget.
  if (end == End::kFailed && gone.trained && !budget_->spend()) return false;
  if (gone.trained) {
    state_.start_after = now + budget_->back_off(now);
  } else if (!stopping_) {
    newcomer_failed(now);
  }
  state_.regroup = true;
  return true;
}

void Membership::kill(Replica& replica, const std::string& why, bool hung) {
  if (std::exchange(replica.killed, true)) return;
  actions_.push_back({.kind = Kind::kKill, .replica = replica.number, .hung = hung, .why = why});
}

void Membership::notice_once(const std::string& text) {
  if (std::exchange(state_.noticed, text) != text) actions_.push_back({.kind = Kind::kNotice, .why = text});
}

std::vector<MembershipAction> Membership::decide(Time now) {
  actions_.clear();
  if (!began_at_) began_at_ = now;
  take_leave(now);
  if (state_.finished_at || stopping_) {
    finish(now);
  } else {
    if (!state_.regroup) kill_hung(now);
    if (state_.regroup) {
      regroup(now);
    } else if (!state_.broken_since) {
      plan(now);
    }
  }
  return std::exchange(actions_, {});
}

// Leavers must not end before all members train without them. Once the members do, the leavers must end within the
// grace period.
void Membership::take_leave(Time now) {
  if (!settled()) return;
  for (Replica& replica : state_.replicas) {
    if (replica.role != Role::kLeaving) continue;
    if (!replica.leave_by) replica.leave_by = now + options_.grace;
    if (now >= *replica.leave_by) kill(replica, "it did not exit after it had left");
  }
}

void Membership::kill_hung(Time now) {
  if (!state_.broken_since) return;
  bool all = true;
  for (Replica& replica : state_.replicas) {
    if (replica.role != Role::kMember || replica.broken) continue;
    all = false;
    if (now - *state_.broken_since >= options_.hang_wait)
      kill(replica, "it hung: the others lost contact with it", true);
  }
  state_.regroup = all;
}

void Membership::finish(Time now) {
  if (!state_.finished_at && !state_.regroup) kill_hung(now);
  const bool can_save = a_member_has_trained();
  for (Replica& replica : state_.replicas) {
    const bool never_joined = replica.role == Role::kLoading || replica.role == Role::kWaiting;
    // A member that was listed just before the end may find no group to join.
    const bool finds_nobody = state_.finished_at ? now - *state_.finished_at >= kFailureGrace : !can_save;
    const bool too_late = replica.role == Role::kMember && !replica.trained && finds_nobody;
    if (never_joined || too_late) kill(replica, "no longer needed");
    // No further generation will be issued.
    if (state_.finished_at && replica.role == Role::kMember && replica.broken && finds_nobody)
      kill(replica, "its group broke after the others had finished", true);
  }
  const bool can_meet = state_.regroup && !state_.finished_at && can_save && !a_member_dies();
  if (can_meet)
    issue({}, false, fmt::format("continuing with {} to save a checkpoint", replicas(count(Role::kMember))));
}

Membership::Difference Membership::difference() const {
  Difference result;
  std::vector<std::string> open = target_.devices;
  for (const Replica& replica : state_.replicas) {
    if (replica.role == Role::kMember && !take_device(open, replica.device)) result.leavers.push_back(replica.number);
  }
  result.missing = open;
  for (const Replica& replica : state_.replicas) {
    const bool newcomer = replica.role == Role::kLoading || replica.role == Role::kWaiting;
    // A killed newcomer may still be on its device.
    if (newcomer && !take_device(open, replica.device) && !replica.killed) result.surplus.push_back(replica.number);
  }
  result.to_start = std::move(open);
  return result;
}

bool Membership::bring_newcomers(const Difference& difference, std::size_t staying, Time now) {
  for (const int surplus : difference.surplus) kill(*find(surplus), "no longer needed");
  const bool start = now >= state_.start_after && state_.newcomer_failures < kNewcomerTries;
  bool loading = false;
  for (Replica& replica : state_.replicas) {
    if (replica.role != Role::kLoading || replica.killed) continue;
    if (now - replica.started < options_.join_limit) {
      loading = true;
      continue;
    }
    replica.late = true;
    kill(replica, "it was not ready to join in time");
  }
  // A leaver's device is not free until the leaver has ended.
  std::vector<std::string> taken;
  for (const Replica& replica : state_.replicas) {
    if (replica.role == Role::kLeaving) taken.push_back(replica.device);
  }
  auto rank = static_cast<int>(staying + count(Role::kLoading) + count(Role::kWaiting));
  const auto size = static_cast<int>(staying + difference.missing.size());
  for (const std::string& device : difference.to_start) {
    if (!device.empty() && take_device(taken, device)) {
      loading = true;
      continue;
    }
    if (!start) continue;
    loading = true;
    state_.replicas.push_back({.number = state_.next, .device = device, .role = Role::kLoading, .started = now});
    actions_.push_back({.kind = Kind::kStart,
                        .replica = state_.next++,
                        .generation = state_.generation + 1,
                        .rank = rank++,
                        .size = size,
                        .device = device});
  }
  return !loading;
}

// After the current generation is lost, issues the next one as soon as it can have enough members.
void Membership::regroup(Time now) {
  if (a_member_dies()) return;
  const std::size_t left = count(Role::kMember);
  const auto min = static_cast<std::size_t>(target_.min);
  if (left >= min) {
    issue({}, false, fmt::format("continuing with {}", replicas(left)));
    return;
  }
  const Difference difference = this->difference();
  const bool all_here = bring_newcomers(difference, left, now);
  if (all_here && left + count(Role::kWaiting) >= min) {
    issue({}, true, fmt::format("continuing with {}", replicas(left + count(Role::kWaiting))));
  } else if (state_.newcomer_failures >= kNewcomerTries || !state_.can_join) {
    actions_.push_back({.kind = Kind::kFail,
                        .why = fmt::format("only {} left, but at least {} required, and replacements cannot join",
                                           replicas(left), target_.min)});
  }
}

void Membership::plan(Time now) {
  const Difference difference = this->difference();
  if (difference.leavers.empty() && difference.missing.empty()) {
    target_.by_user = false;
    state_.noticed.clear();
    bring_newcomers(difference, 0, now);  // kills the newcomers of a change that was undone
    return;
  }
  if (follows_ == true && state_.can_join) {
    plan_live(difference, now);
  } else if (known_not_to_follow(now) || (follows_ == true && !state_.can_join)) {
    for (Replica& replica : state_.replicas) {
      if (is_newcomer(replica.number)) kill(replica, "no longer needed");
    }
    plan_restart(now);
  }
}

void Membership::plan_live(const Difference& difference, Time now) {
  const std::size_t members = count(Role::kMember);
  const std::size_t staying = members - difference.leavers.size();
  const bool may_issue = settled();
  // Devices are returned without waiting for newcomers, unless too few members would be left.
  if (!difference.leavers.empty() && !leavers_wait()) {
    if (may_issue) issue(difference.leavers, false, fmt::format("from {} to {}", members, replicas(staying)));
    return;
  }
  const bool all_here = bring_newcomers(difference, staying, now);
  const std::size_t ready = count(Role::kWaiting);
  const bool enough = staying + ready >= static_cast<std::size_t>(target_.min);
  if (may_issue && all_here && enough && ready > 0) {
    // Newcomers receive the states from a member, so if no member stays, the leavers leave only after the newcomers
    // have joined.
    const std::vector<int> leavers = staying > 0 ? difference.leavers : std::vector<int>();
    issue(leavers, true, fmt::format("from {} to {}", members, replicas(members - leavers.size() + ready)));
  } else if (state_.newcomer_failures >= kNewcomerTries && ready == 0) {
    notice_once(fmt::format("new replicas failed {} times in a row: staying at {}", kNewcomerTries, replicas(members)));
  }
}

void Membership::plan_restart(Time now) {
  if (!options_.can_restart) {
    notice_once(fmt::format(
        "the program cannot change its replicas while it runs, and cannot be restarted without checkpoints: "
        "staying at {}",
        replicas(count(Role::kMember))));
  } else if (target_.by_user || now >= options_.restart_after) {
    actions_.push_back({.kind = Kind::kRestart,
                        .why = fmt::format("from {} to {}", count(Role::kMember), replicas(target_.devices.size()))});
  }
}

void Membership::issue(const std::vector<int>& leavers, bool with_newcomers, const std::string& why) {
  ++state_.generation;
  const auto listed = [&](const Replica& replica) {
    if (replica.role == Role::kWaiting) return with_newcomers && !replica.killed;
    return replica.role == Role::kMember && std::ranges::find(leavers, replica.number) == leavers.end();
  };
  // Members that stay keep their order, and newcomers come last.
  std::ranges::stable_sort(state_.replicas, {}, [&](const Replica& replica) {
    return !listed(replica) ? 2 : replica.role == Role::kMember ? 0 : 1;
  });
  for (Replica& replica : state_.replicas) {
    if (listed(replica)) {
      replica.role = Role::kMember;
    } else if (replica.role == Role::kMember) {
      replica.role = Role::kLeaving;
    }
    replica.broken = false;
  }
  state_.broken_since.reset();
  state_.regroup = state_.incomplete = false;
  actions_.push_back({.kind = Kind::kIssue, .generation = state_.generation, .members = members(), .why = why});
}

}  // namespace adaptdl::sched
