#include "membership/membership.h"

#include <algorithm>
#include <utility>

namespace adaptdl::sched {

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
  // A target that a user requested remains a user's request until it is reached.
  target.by_user = target.by_user || (target_.by_user && target.devices == target_.devices);
  if (target.devices != target_.devices) state_.newcomer_failures = 0;
  target_ = std::move(target);
}

bool Membership::can_save_without(int replica) const {
  const bool ends = state_.is_member(replica) && !options_.survives && !stopping_ && !state_.finished_at;
  return ends && options_.can_restart && follows_ == true && progressed_at_ &&
         std::ranges::any_of(state_.replicas, [&](const Replica& other) {
           return other.number != replica && other.role == Role::kMember && other.trained && !other.killed;
         });
}

bool Membership::steady() const {
  const MembershipDifference difference = state_.difference_from(target_);
  return !state_.regroup && (state_.settled() || state_.generation == 0) && difference.leavers.empty() &&
         difference.missing.empty();
}

bool Membership::leavers_wait() const {
  const MembershipDifference difference = state_.difference_from(target_);
  const std::size_t staying = state_.count(Role::kMember) - difference.leavers.size();
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
  Replica* newcomer = state_.find(replica);
  if (newcomer != nullptr && newcomer->role == Role::kLoading) newcomer->role = Role::kWaiting;
}

void Membership::broken(int replica, int generation, Time now) {
  Replica* member = state_.find(replica);
  if (member == nullptr || member->role != Role::kMember || generation != state_.generation) return;
  member->broken = true;
  // A newcomer's report is ignored: its group may have broken only because the other members are still in a long step,
  // or saving a checkpoint, in the previous generation.
  if (!state_.broken_since && member->trained) state_.broken_since = now;
}

void Membership::trains(int replica, int generation) {
  Replica* member = state_.find(replica);
  if (member == nullptr) return;
  member->trains = std::max(member->trains, generation);
  if (!std::exchange(member->trained, true)) state_.newcomer_failures = 0;
}

void Membership::cannot_join(int replica) {
  if (state_.find(replica) != nullptr) state_.can_join = false;
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
    if (stopping_ && gone.trained && !state_.a_member_has_trained() && !state_.finished_at) state_.finished_at = now;
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
  // The replica joined when the work was already done, and the others finished without it.
  if (state_.finished_at && !gone.trained) return true;
  if (end == End::kCheckpointed || given_up_ || state_.finished_at || (!options_.survives && !stopping_)) return false;
  const bool never_joined = stopping_ && !gone.trained;
  // A failure while the job stops may be a failure to save the checkpoint.
  if (stopping_ && end == End::kFailed && !never_joined) return false;
  // Saving a checkpoint does not require the minimum number of members.
  const bool enough = stopping_ || state_.count(Role::kMember) >= static_cast<std::size_t>(target_.min);
  if (follows_ != true || !state_.a_member_has_trained() || (!enough && !state_.can_join)) return never_joined;
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

}  // namespace adaptdl::sched
