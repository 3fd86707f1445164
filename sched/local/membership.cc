#include "local/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "local/launch_plan.h"

namespace adaptdl::sched {
namespace {

using Kind = MembershipAction::Kind;

// Takes one such device out of the list, if there is one.
bool take_device(std::vector<std::string>& devices, const std::string& device) {
  const auto found = std::ranges::find(devices, device);
  if (found == devices.end()) return false;
  devices.erase(found);
  return true;
}

std::string replicas(std::size_t count) { return fmt::format("{} replica{}", count, count == 1 ? "" : "s"); }

}  // namespace

Membership::Membership(Options options, MembershipTarget target, RestartBudget& budget)
    : options_(options), budget_(budget), can_join_(options.can_join) {
  for (const std::string& device : target.devices) {
    replicas_.push_back({.number = next_++, .device = device, .state = State::kMember, .trained = true});
  }
  set_target(std::move(target));
}

void Membership::set_target(MembershipTarget target) {
  target.min = std::clamp(target.min, 1, std::max(1, static_cast<int>(target.devices.size())));
  // What a user asked for stays so until it is done.
  target.by_user = target.by_user || (target_.by_user && target.devices == target_.devices);
  if (target.devices != target_.devices) newcomer_failures_ = 0;
  target_ = std::move(target);
}

Membership::Replica* Membership::find(int replica) {
  const auto found = std::ranges::find(replicas_, replica, &Replica::number);
  return found == replicas_.end() ? nullptr : &*found;
}

const Membership::Replica* Membership::find(int replica) const { return const_cast<Membership*>(this)->find(replica); }

std::size_t Membership::count(State state) const {
  return static_cast<std::size_t>(std::ranges::count_if(replicas_, [state](const Replica& replica) {
    return replica.state == state && (state == State::kMember || !replica.killed);
  }));
}

std::vector<int> Membership::members() const {
  std::vector<int> result;
  for (const Replica& replica : replicas_) {
    if (replica.state == State::kMember) result.push_back(replica.number);
  }
  return result;
}

std::vector<std::string> Membership::devices() const {
  std::vector<std::string> result;
  for (const Replica& replica : replicas_) {
    if (replica.state == State::kMember) result.push_back(replica.device);
  }
  return result;
}

bool Membership::is_member(int replica) const {
  const Replica* found = find(replica);
  return found != nullptr && found->state == State::kMember;
}

bool Membership::is_newcomer(int replica) const {
  const Replica* found = find(replica);
  return found != nullptr && (found->state == State::kLoading || found->state == State::kWaiting);
}

bool Membership::settled() const {
  return std::ranges::all_of(replicas_, [this](const Replica& replica) {
    return replica.state != State::kMember || replica.trains == generation_;
  });
}

bool Membership::steady() const {
  const Difference difference = this->difference();
  return !regroup_ && (settled() || generation_ == 0) && difference.leavers.empty() && difference.missing.empty();
}

void Membership::progressed(Time now) {
  if (!progressed_at_) progressed_at_ = now;
}

bool Membership::known_not_to_follow(Time now) const {
  if (follows_) return !*follows_;
  return (progressed_at_ && now - *progressed_at_ >= kHintWait) || (began_at_ && now - *began_at_ >= kSilence);
}

bool Membership::is_stuck(Time now) const {
  return !options_.can_restart && (known_not_to_follow(now) || (follows_ == true && !can_join_));
}

void Membership::waits(int replica, Time) {
  Replica* newcomer = find(replica);
  if (newcomer != nullptr && newcomer->state == State::kLoading) newcomer->state = State::kWaiting;
}

void Membership::broken(int replica, int generation, Time now) {
  Replica* member = find(replica);
  if (member == nullptr || member->state != State::kMember || generation != generation_) return;
  member->broken = true;
  if (!broken_since_) broken_since_ = now;
}

void Membership::trains(int replica, int generation) {
  Replica* member = find(replica);
  if (member == nullptr) return;
  member->trains = std::max(member->trains, generation);
  if (!std::exchange(member->trained, true)) newcomer_failures_ = 0;
}

void Membership::cannot_join(int replica) {
  if (find(replica) != nullptr) can_join_ = false;
}

void Membership::newcomer_failed(Time now) {
  start_after_ = now + budget_.back_off(now);
  ++newcomer_failures_;
}

bool Membership::ended(int replica, End end, Time now) {
  const auto found = std::ranges::find(replicas_, replica, &Replica::number);
  if (found == replicas_.end()) return true;
  const Replica gone = std::move(*found);
  replicas_.erase(found);
  if (gone.state == State::kMember) return member_ended(gone, end, now);
  // One that was killed because it is not needed has not failed; one that came too late has.
  const bool unneeded = gone.killed && !gone.late;
  if (gone.state == State::kLeaving || unneeded || stopping_) return true;
  newcomer_failed(now);
  // Whoever killed it says nothing about the next one.
  if (end == End::kKilled && !gone.killed) --newcomer_failures_;
  return true;
}

bool Membership::member_ended(const Replica& gone, End end, Time now) {
  if (end == End::kDone) {
    if (!finished_at_) finished_at_ = now;
    return false;
  }
  // It came when the work was done, which the others have done without it.
  if (finished_at_ && !gone.trained) return true;
  if (end == End::kCheckpointed || stopping_ || finished_at_ || !options_.survives) return false;
  const std::size_t left = count(State::kMember);
  const bool enough = left >= static_cast<std::size_t>(target_.min);
  // Those that were listed and have not begun to train have nothing to go on from.
  const bool have_state = std::ranges::any_of(
      replicas_, [](const Replica& replica) { return replica.state == State::kMember && replica.trained; });
  if (follows_ != true || !have_state || (!enough && !can_join_)) return false;
  // One that was listed, but had not begun to train, ends only itself.
  if (end == End::kFailed && gone.trained && !budget_.spend()) return false;
  if (gone.trained) {
    start_after_ = now + budget_.back_off(now);
  } else {
    newcomer_failed(now);
  }
  regroup_ = true;
  return true;
}

void Membership::kill(Replica& replica, const std::string& why, bool hung) {
  if (std::exchange(replica.killed, true)) return;
  actions_.push_back({.kind = Kind::kKill, .replica = replica.number, .hung = hung, .why = why});
}

void Membership::notice_once(const std::string& text) {
  if (std::exchange(noticed_, text) != text) actions_.push_back({.kind = Kind::kNotice, .why = text});
}

std::vector<MembershipAction> Membership::decide(Time now) {
  actions_.clear();
  if (!began_at_) began_at_ = now;
  take_leave(now);
  if (finished_at_ || stopping_) {
    finish(now);
  } else {
    if (!regroup_) kill_hung(now);
    if (regroup_) {
      regroup(now);
    } else if (!broken_since_) {
      plan(now);
    }
  }
  return std::exchange(actions_, {});
}

// The others have left a leaver behind once all of them train without it; it must not end before.
void Membership::take_leave(Time now) {
  if (!settled()) return;
  for (Replica& replica : replicas_) {
    if (replica.state != State::kLeaving) continue;
    if (!replica.leave_by) replica.leave_by = now + options_.grace;
    if (now >= *replica.leave_by) kill(replica, "it did not end when it had left");
  }
}

void Membership::kill_hung(Time now) {
  if (!broken_since_) return;
  bool all = true;
  for (Replica& replica : replicas_) {
    if (replica.state != State::kMember || replica.broken) continue;
    all = false;
    if (now - *broken_since_ >= kHangWait) kill(replica, "it hangs: the others lost it", true);
  }
  regroup_ = all;
}

void Membership::finish(Time now) {
  for (Replica& replica : replicas_) {
    const bool never_joined = replica.state == State::kLoading || replica.state == State::kWaiting;
    // One that was listed at the very end may find nobody to join.
    const bool too_late =
        replica.state == State::kMember && !replica.trained && finished_at_ && now - *finished_at_ >= kFailureGrace;
    if (never_joined || too_late) kill(replica, "it is not needed any more");
  }
  const bool can_meet = regroup_ && !finished_at_ && count(State::kMember) > 0;
  if (can_meet) issue({}, false, fmt::format("going on with {} to save a checkpoint", replicas(count(State::kMember))));
}

Membership::Difference Membership::difference() const {
  Difference result;
  std::vector<std::string> open = target_.devices;
  for (const Replica& replica : replicas_) {
    if (replica.state == State::kMember && !take_device(open, replica.device)) result.leavers.push_back(replica.number);
  }
  result.missing = open;
  for (const Replica& replica : replicas_) {
    const bool newcomer = replica.state == State::kLoading || replica.state == State::kWaiting;
    // One that was killed may still be on its device.
    if (newcomer && !take_device(open, replica.device) && !replica.killed) result.surplus.push_back(replica.number);
  }
  result.to_start = std::move(open);
  return result;
}

bool Membership::bring_newcomers(const Difference& difference, std::size_t staying, Time now) {
  for (const int surplus : difference.surplus) kill(*find(surplus), "it is not needed any more");
  const bool start = now >= start_after_ && newcomer_failures_ < kNewcomerTries;
  bool loading = false;
  for (Replica& replica : replicas_) {
    if (replica.state != State::kLoading || replica.killed) continue;
    if (now - replica.started < kJoinLimit) {
      loading = true;
      continue;
    }
    replica.late = true;
    kill(replica, "it did not get ready to join in time");
  }
  // A device on which somebody still ends is not free.
  std::vector<std::string> taken;
  for (const Replica& replica : replicas_) {
    if (replica.state == State::kLeaving) taken.push_back(replica.device);
  }
  auto rank = static_cast<int>(staying + count(State::kLoading) + count(State::kWaiting));
  const auto size = static_cast<int>(staying + difference.missing.size());
  for (const std::string& device : difference.to_start) {
    if (!device.empty() && take_device(taken, device)) {
      loading = true;
      continue;
    }
    if (!start) continue;
    loading = true;
    replicas_.push_back({.number = next_, .device = device, .state = State::kLoading, .started = now});
    actions_.push_back({.kind = Kind::kStart,
                        .replica = next_++,
                        .generation = generation_ + 1,
                        .rank = rank++,
                        .size = size,
                        .device = device});
  }
  return !loading;
}

// The present generation is lost: the next one as soon as enough can be in it.
void Membership::regroup(Time now) {
  const std::size_t left = count(State::kMember);
  const bool one_dies = std::ranges::any_of(
      replicas_, [](const Replica& replica) { return replica.state == State::kMember && replica.killed; });
  if (one_dies) return;
  const auto min = static_cast<std::size_t>(target_.min);
  if (left >= min) {
    issue({}, false, fmt::format("going on with {}", replicas(left)));
    return;
  }
  const Difference difference = this->difference();
  const bool all_here = bring_newcomers(difference, left, now);
  if (all_here && left + count(State::kWaiting) >= min) {
    issue({}, true, fmt::format("going on with {}", replicas(left + count(State::kWaiting))));
  } else if (newcomer_failures_ >= kNewcomerTries || !can_join_) {
    actions_.push_back(
        {.kind = Kind::kFail,
         .why = fmt::format("{} left, of at least {}, and replacements cannot join", replicas(left), target_.min)});
  }
}

void Membership::plan(Time now) {
  const Difference difference = this->difference();
  if (difference.leavers.empty() && difference.missing.empty()) {
    target_.by_user = false;
    noticed_.clear();
    bring_newcomers(difference, 0, now);  // those of a change that was taken back go
    return;
  }
  if (follows_ == true && can_join_) {
    plan_live(difference, now);
  } else if (known_not_to_follow(now) || (follows_ == true && !can_join_)) {
    for (Replica& replica : replicas_) {
      if (is_newcomer(replica.number)) kill(replica, "it is not needed any more");
    }
    plan_restart(now);
  }
}

void Membership::plan_live(const Difference& difference, Time now) {
  const std::size_t members = count(State::kMember);
  const std::size_t staying = members - difference.leavers.size();
  const bool may_issue = settled();
  // Who asked for its devices waits for no newcomer, unless too few would be left.
  if (!difference.leavers.empty() && (difference.missing.empty() || staying >= static_cast<std::size_t>(target_.min))) {
    if (may_issue) issue(difference.leavers, false, fmt::format("from {} to {}", members, replicas(staying)));
    return;
  }
  const bool all_here = bring_newcomers(difference, staying, now);
  const std::size_t ready = count(State::kWaiting);
  const bool enough = staying + ready >= static_cast<std::size_t>(target_.min);
  if (may_issue && all_here && enough && ready > 0) {
    // Newcomers get the states from a member: if none stays, the leavers leave once these have joined.
    const std::vector<int> leavers = staying > 0 ? difference.leavers : std::vector<int>();
    issue(leavers, true, fmt::format("from {} to {}", members, replicas(members - leavers.size() + ready)));
  } else if (newcomer_failures_ >= kNewcomerTries && ready == 0) {
    notice_once(fmt::format("newcomers failed {} times in a row: staying at {}", kNewcomerTries, replicas(members)));
  }
}

void Membership::plan_restart(Time now) {
  if (!options_.can_restart) {
    notice_once(fmt::format(
        "the program cannot change its replicas while it runs, and without checkpoints it cannot be started "
        "again with others: staying at {}",
        replicas(count(State::kMember))));
  } else if (target_.by_user || now >= options_.restart_after) {
    actions_.push_back({.kind = Kind::kRestart,
                        .why = fmt::format("from {} to {}", count(State::kMember), replicas(target_.devices.size()))});
  }
}

void Membership::issue(const std::vector<int>& leavers, bool with_newcomers, const std::string& why) {
  ++generation_;
  const auto listed = [&](const Replica& replica) {
    if (replica.state == State::kWaiting) return with_newcomers && !replica.killed;
    return replica.state == State::kMember && std::ranges::find(leavers, replica.number) == leavers.end();
  };
  // Those that stay keep their order, and newcomers come last.
  std::ranges::stable_sort(replicas_, {}, [&](const Replica& replica) {
    return !listed(replica) ? 2 : replica.state == State::kMember ? 0 : 1;
  });
  for (Replica& replica : replicas_) {
    if (listed(replica)) {
      replica.state = State::kMember;
    } else if (replica.state == State::kMember) {
      replica.state = State::kLeaving;
    }
    replica.broken = false;
  }
  broken_since_.reset();
  regroup_ = false;
  actions_.push_back({.kind = Kind::kIssue, .generation = generation_, .members = members(), .why = why});
}

}  // namespace adaptdl::sched
