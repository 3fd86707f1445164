// Tests how the members of a run change until they match its target.
#include "membership/membership.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "golden.h"
#include "membership_support.h"

namespace membership_test {

using namespace adaptdl::sched;
using namespace testing;

TEST_CASE("a run that matches its target is left unchanged") {
  Run run({"0", "1"}, 2);
  CHECK(run.membership.members() == Numbers{0, 1});
  CHECK(run.membership.devices() == Devices{"0", "1"});
  CHECK(run.decide().empty());
  run.train();
  CHECK(run.decide(1h).empty());
  CHECK(run.membership.steady());
}

TEST_CASE("growth: newcomers start on the new devices and are listed last, once all are ready") {
  Run run({"0", "1"});
  run.train();
  run.want({"0", "1", "2", "3"});
  CHECK_FALSE(run.membership.steady());
  const auto started = run.decide();
  REQUIRE(started.size() == 2);
  for (int i = 0; i < 2; ++i) {
    const auto& action = started[static_cast<std::size_t>(i)];
    CHECK(action.kind == Kind::kStart);
    CHECK(action.replica == 2 + i);
    CHECK(action.rank == 2 + i);
    CHECK(action.size == 4);
    CHECK(action.generation == 1);
    CHECK(action.device == std::to_string(2 + i));
  }
  CHECK(run.decide(1s).empty());
  run.membership.waits(3, run.now);
  CHECK(run.decide(1s).empty());
  run.membership.waits(2, run.now);
  const auto issued = run.only(Kind::kIssue);
  CHECK(issued.generation == 1);
  CHECK(issued.members == Numbers{0, 1, 2, 3});
  run.train();
  CHECK(run.decide(1h).empty());
  CHECK(run.membership.steady());
}

TEST_CASE("growth waits until the program reports that it is training") {
  Run run({"0"});
  run.want({"0", "1"});
  CHECK(run.decide(1h).empty());
  run.train();
  CHECK(run.only(Kind::kStart).replica == 1);
}

TEST_CASE("newcomers that are not ready within the join limit are killed, and the others join") {
  Run run({"0"});
  run.train();
  run.want({"0", "1", "2"});
  run.decide();
  run.membership.waits(2, run.now);
  CHECK(run.decide(kJoinLimit - 1s).empty());
  const auto actions = run.decide(1s);
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].kind == Kind::kKill);
  CHECK(actions[0].replica == 1);
  CHECK(actions[1].kind == Kind::kIssue);
  CHECK(actions[1].members == Numbers{0, 2});
  // After a pause, another replica is started on the device that is still free.
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.decide().empty());
  const auto again = run.only(Kind::kStart, kFirstBackOff);
  CHECK(again.replica == 3);
  CHECK(again.device == "1");
}

TEST_CASE("shrinking: members on withdrawn devices leave, or those with the highest ranks if devices have no names") {
  Run run({"0", "1", "2", "3"});
  run.train();
  run.want({"1", "3"});
  CHECK(run.only(Kind::kIssue).members == Numbers{1, 3});
  run.train();
  CHECK(run.membership.ended(0, End::kDone, run.now));
  CHECK(run.membership.ended(2, End::kDone, run.now));
  CHECK(run.decide().empty());
  Run nameless({"", "", ""});
  nameless.train();
  nameless.want({""});
  CHECK(nameless.only(Kind::kIssue).members == Numbers{0});
}

TEST_CASE("a leaving member that does not exit is killed a grace period after the others regrouped") {
  Run run({"0", "1"}, 1, {.survives = true, .grace = 30s});
  run.train();
  run.want({"0"});
  run.only(Kind::kIssue);
  CHECK(run.decide(1h).empty());  // a step may take long
  run.train();
  CHECK(run.decide().empty());
  CHECK(run.decide(29s).empty());
  CHECK(run.only(Kind::kKill, 1s).replica == 1);
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.decide(1h).empty());
}

TEST_CASE("moving: a withdrawn device is released first if the remaining members suffice") {
  Run run({"0", "1"});
  run.train();
  run.want({"0", "2"});
  CHECK(run.only(Kind::kIssue).members == Numbers{0});
  run.train();
  run.membership.ended(1, End::kDone, run.now);
  CHECK(run.grow() == Numbers{0, 2});
  Run enough({"0", "1"}, 2);
  enough.train();
  enough.want({"0", "2"}, 2);
  CHECK(enough.grow() == Numbers{0, 2});
  CHECK(enough.membership.ended(1, End::kDone, enough.now));
}

TEST_CASE("moving to entirely different devices: members leave only after newcomers have the state") {
  Run run({"0"});
  run.train();
  run.want({"1", "2"});
  CHECK(run.grow() == Numbers{0, 1, 2});
  CHECK(run.only(Kind::kIssue).members == Numbers{1, 2});
  run.train();
  CHECK(run.membership.steady());
}

TEST_CASE("the next planned generation waits until all members are training, and uses the newest target") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  run.membership.waits(run.only(Kind::kStart).replica, run.now);
  run.only(Kind::kIssue);
  run.want({"0"});
  CHECK(run.decide(1s).empty());
  run.membership.trains(0, 1);
  CHECK(run.decide(1s).empty());
  run.want({"0", "1", "2"});
  run.membership.trains(1, 1);
  CHECK(run.only(Kind::kStart).device == "2");
}

TEST_CASE("a newer target replaces one in progress") {
  Run run({"0"});
  run.train();
  run.want({"0", "1", "2"});
  CHECK(run.decide().size() == 2);
  run.membership.waits(1, run.now);
  run.want({"0", "1"});
  const auto actions = run.decide();
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].kind == Kind::kKill);
  CHECK(actions[0].replica == 2);
  CHECK(actions[1].members == Numbers{0, 1});
  run.train();
  CHECK(run.membership.ended(2, End::kKilled, run.now));
  CHECK(run.budget.used() == 0);
}

TEST_CASE("canceling a growth kills only the newcomers") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  run.only(Kind::kStart);
  run.want({"0"});
  CHECK(run.only(Kind::kKill).replica == 1);
  CHECK(run.decide(1h).empty());
}

TEST_CASE("a newcomer's death ends no other replica, and after three in a row, none start until the target changes") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  auto pause = 0ms;
  for (int i = 1; i <= kNewcomerTries; ++i) {
    const int newcomer = run.only(Kind::kStart, pause).replica;
    CHECK(newcomer == i);
    CHECK(run.membership.ended(newcomer, End::kFailed, run.now));
    pause = pause == 0ms ? kFirstBackOff : pause * 2;
  }
  CHECK_GOLDEN(run.only(Kind::kNotice, 1h).why);
  CHECK(run.decide(1h).empty());
  CHECK(run.budget.used() == 0);
  run.want({"0", "2"});
  CHECK(run.only(Kind::kStart).device == "2");
}

namespace {

// A run that changes at random.
struct RandomRun {
  unsigned random(unsigned below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  }

  bool another_has_trained(int replica) const {
    return std::ranges::any_of(run.membership.members(),
                               [&](int member) { return member != replica && trained.contains(member); });
  }

  void end(int replica, End how) {
    CHECK(run.membership.ended(replica, how, run.now));
    std::erase(alive, replica);
  }

  void carry_out() {
    for (const auto& action : run.decide(100ms)) {
      REQUIRE(action.kind != Kind::kRestart);
      REQUIRE(action.kind != Kind::kFail);
      if (action.kind == Kind::kStart) {
        REQUIRE(std::ranges::find(alive, action.replica) == alive.end());
        alive.push_back(action.replica);
      } else if (action.kind == Kind::kKill) {
        run.membership.ended(action.replica, End::kKilled, run.now);
        std::erase(alive, action.replica);
      } else if (action.kind == Kind::kIssue) {
        for (const int member : action.members) REQUIRE(std::ranges::find(alive, member) != alive.end());
      }
    }
  }

  void change() {
    const int replica = alive[random(static_cast<unsigned>(alive.size()))];
    const bool member = run.membership.is_member(replica);
    switch (random(6)) {
      case 0: {
        Devices devices;
        for (unsigned i = 0; i < 5; ++i) {
          if (random(2) == 0) devices.push_back(std::to_string(i));
        }
        if (!devices.empty()) run.want(devices);
        break;
      }
      case 1:
        if (!member || another_has_trained(replica)) end(replica, member ? End::kKilled : End::kDone);
        break;
      case 2:
        if (!member && !run.membership.is_newcomer(replica)) break;
        run.membership.broken(replica, run.membership.generation(), run.now);
        break;
      default:
        run.membership.waits(replica, run.now);
        if (member) run.membership.trains(replica, run.membership.generation());
        if (member) trained.insert(replica);
    }
  }

  // Lets all replicas train, and those that the run no longer needs end.
  void train() {
    for (const int replica : Numbers(alive)) {
      run.membership.waits(replica, run.now);
      run.membership.trains(replica, run.membership.generation());
      if (!run.membership.is_member(replica) && !run.membership.is_newcomer(replica)) end(replica, End::kDone);
    }
  }

  unsigned state = 7;
  Run run{{"0"}, 1};
  Numbers alive = {0};
  std::set<int> trained = {0};
};

}  // namespace

TEST_CASE("after many random changes, the members match the target, and no replica was started twice") {
  RandomRun random;
  Run& run = random.run;
  run.train();
  for (int round = 0; round < 20000; ++round) {
    random.change();
    random.carry_out();
  }
  run.want({"1", "3", "4"});
  for (int round = 0; round < 1000 && !run.membership.steady(); ++round) {
    random.train();
    random.carry_out();
  }
  CHECK(run.membership.steady());
  auto devices = run.membership.devices();
  std::ranges::sort(devices);
  CHECK(devices == Devices{"1", "3", "4"});
}

}  // namespace membership_test
