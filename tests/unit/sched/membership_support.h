// A run for the tests of its membership.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "local/base/launch_plan.h"
#include "local/launch/restart_budget.h"
#include "membership/membership.h"

namespace testing {

using namespace adaptdl::sched;
using namespace std::chrono_literals;

using Kind = MembershipAction::Kind;
using End = Membership::End;
using Devices = std::vector<std::string>;
using Numbers = std::vector<int>;

// A run whose program follows generations, and whose replicas follow decisions when a test says so.
struct Run {
  explicit Run(Devices devices, int min = 1, Membership::Options options = {.survives = true}, int max_restarts = 3)
      : budget(max_restarts), membership(options, {.devices = std::move(devices), .min = min}, budget) {}

  // Reports that the program follows generations, and that all members are training in the current one.
  void train() {
    membership.set_follows(true);
    for (const int member : membership.members()) membership.trains(member, membership.generation());
  }
  std::vector<MembershipAction> decide(std::chrono::milliseconds later = 0ms) {
    now += later;
    return membership.decide(now);
  }
  // Returns the only action that is decided now, which must be of this kind.
  MembershipAction only(Kind kind, std::chrono::milliseconds later = 0ms) {
    const auto actions = decide(later);
    REQUIRE(actions.size() == 1);
    REQUIRE(actions.front().kind == kind);
    return actions.front();
  }
  void want(Devices devices, int min = 1, bool by_user = false) {
    membership.set_target({.devices = std::move(devices), .min = min, .by_user = by_user});
  }
  // Starts the missing replicas, reports each as waiting, and returns the members of the generation issued then.
  Numbers grow(std::chrono::milliseconds later = 0ms) {
    for (const auto& action : decide(later)) {
      REQUIRE(action.kind == Kind::kStart);
      membership.waits(action.replica, now);
    }
    const auto issued = only(Kind::kIssue);
    train();
    return issued.members;
  }

  RestartBudget budget;
  Membership membership;
  Membership::Time now{1h};
};

}  // namespace testing
