#include "membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace adaptdl::sched {
namespace {

using Kind = MembershipAction::Kind;

std::string replicas(std::size_t count) { return fmt::format("{} replica{}", count, count == 1 ? "" : "s"); }

}  // namespace

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
  give_up_hung(now);
  if (!actions_.empty() && actions_.back().kind == Kind::kFail) return std::exchange(actions_, {});
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

// Leavers must not end before all members are training without them. After that, the leavers must end within the grace
// period.
void Membership::take_leave(Time now) {
  if (!state_.settled()) return;
  for (Replica& replica : state_.replicas) {
    if (replica.role != Role::kLeaving) continue;
    if (!replica.leave_by) replica.leave_by = now + options_.grace;
    if (now >= *replica.leave_by) kill(replica, "it did not exit after it had left the job");
  }
}

void Membership::kill_hung(Time now) {
  if (!state_.broken_since) return;
  bool all = true;
  for (Replica& replica : state_.replicas) {
    if (replica.role != Role::kMember || replica.broken) continue;
    all = false;
    if (replica.killed || now - *state_.broken_since < options_.hang_wait) continue;
    kill(replica, "it hung: the others lost contact with it", true);
    state_.broken_since = now - options_.hang_wait;  // give_up_hung() measures the time since the kill
  }
  state_.regroup = all;
}

// The others continue without a hung member that has not ended after SIGKILL.
void Membership::give_up_hung(Time now) {
  if (!state_.broken_since || now - *state_.broken_since < options_.hang_wait + kKillWait) return;
  const std::vector<int> members = state_.members();
  for (Replica& replica : state_.replicas) {
    if (replica.role != Role::kMember || !replica.killed || replica.broken) continue;
    const auto rank = std::ranges::find(members, replica.number) - members.begin();
    replica.role = Role::kLeaving;
    state_.incomplete = true;
    std::string why =
        fmt::format("replica {} did not end after SIGKILL; it is blocked in the kernel, perhaps waiting for a device "
                    "or a file server",
                    rank);
    const std::size_t left = state_.count(Role::kMember);
    if (!stopping_ && (!options_.survives || follows_ != true || !state_.a_member_has_trained())) {
      actions_.push_back({.kind = Kind::kFail, .why = why});
    } else {
      if (!stopping_ && left < static_cast<std::size_t>(target_.min))
        why += fmt::format(": waiting for it, because only {} left, but at least {} required", replicas(left),
                           target_.min);
      actions_.push_back({.kind = Kind::kGiveUp, .replica = replica.number, .why = why});
    }
  }
}

void Membership::finish(Time now) {
  if (!state_.finished_at && !state_.regroup) kill_hung(now);
  const bool can_save = state_.a_member_has_trained();
  for (Replica& replica : state_.replicas) {
    const bool never_joined = replica.role == Role::kLoading || replica.role == Role::kWaiting;
    // A member that was listed just before the end may find no group to join.
    const bool has_no_peers = state_.finished_at ? now - *state_.finished_at >= kFailureGrace : !can_save;
    const bool too_late = replica.role == Role::kMember && !replica.trained && has_no_peers;
    if (never_joined || too_late) kill(replica, "no longer needed");
    // No further generation will be issued.
    if (state_.finished_at && replica.role == Role::kMember && replica.broken && has_no_peers)
      kill(replica, "it lost contact with the others, which have finished", true);
  }
  const bool can_meet = state_.regroup && !state_.finished_at && can_save && !state_.a_member_dies();
  if (can_meet)
    issue({}, false, fmt::format("continuing with {} to save a checkpoint", replicas(state_.count(Role::kMember))));
}

bool Membership::bring_newcomers(const MembershipDifference& difference, std::size_t staying, Time now) {
  for (const int surplus : difference.surplus) kill(*state_.find(surplus), "no longer needed");
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
  std::vector<std::string> taken, blocked;
  for (const Replica& replica : state_.replicas) {
    if (replica.role == Role::kLeaving) (replica.killed ? blocked : taken).push_back(replica.device);
  }
  auto rank = static_cast<int>(staying + state_.count(Role::kLoading) + state_.count(Role::kWaiting));
  const auto size = static_cast<int>(staying + difference.missing.size());
  for (const std::string& device : difference.to_start) {
    if (!device.empty() && take_device(taken, device)) {
      loading = true;
      continue;
    }
    if (!start || (!device.empty() && take_device(blocked, device))) continue;
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
  if (state_.a_member_dies()) return;
  const std::size_t left = state_.count(Role::kMember);
  const auto min = static_cast<std::size_t>(target_.min);
  if (left >= min) {
    issue({}, false, fmt::format("continuing with {}", replicas(left)));
    return;
  }
  const MembershipDifference difference = state_.difference_from(target_);
  const bool all_here = bring_newcomers(difference, left, now);
  if (all_here && left + state_.count(Role::kWaiting) >= min) {
    issue({}, true, fmt::format("continuing with {}", replicas(left + state_.count(Role::kWaiting))));
  } else if (state_.newcomer_failures >= kNewcomerTries || !state_.can_join) {
    actions_.push_back({.kind = Kind::kFail,
                        .why = fmt::format("only {} left, but at least {} required, and replacements cannot join",
                                           replicas(left), target_.min)});
  }
}

void Membership::plan(Time now) {
  const MembershipDifference difference = state_.difference_from(target_);
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
      if (state_.is_newcomer(replica.number)) kill(replica, "no longer needed");
    }
    plan_restart(now);
  }
}

void Membership::plan_live(const MembershipDifference& difference, Time now) {
  const std::size_t members = state_.count(Role::kMember);
  const std::size_t staying = members - difference.leavers.size();
  const bool may_issue = state_.settled();
  // Leavers release their devices without waiting for newcomers, unless too few members would be left.
  if (!difference.leavers.empty() && !leavers_wait()) {
    if (may_issue) issue(difference.leavers, false, fmt::format("from {} to {}", members, replicas(staying)));
    return;
  }
  const bool all_here = bring_newcomers(difference, staying, now);
  const std::size_t ready = state_.count(Role::kWaiting);
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
        "the program does not support changing the number of replicas while it runs, and the run has no checkpoints to "
        "restart from: staying at {}",
        replicas(state_.count(Role::kMember))));
  } else if (target_.by_user || now >= options_.restart_after) {
    actions_.push_back(
        {.kind = Kind::kRestart,
         .why = fmt::format("from {} to {}", state_.count(Role::kMember), replicas(target_.devices.size()))});
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
  actions_.push_back({.kind = Kind::kIssue, .generation = state_.generation, .members = state_.members(), .why = why});
}

}  // namespace adaptdl::sched
