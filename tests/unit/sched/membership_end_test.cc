// Tests how a membership ends (by a restart of the program, the end of the job or a stop) and how another resumes it.
#include <doctest/doctest.h>

#include "golden.h"
#include "membership_support.h"

namespace membership_end_test {

using namespace adaptdl::sched;
using namespace testing;

TEST_CASE("a program that newcomers cannot join is restarted with the new number of replicas") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  const int newcomer = run.only(Kind::kStart).replica;
  run.membership.cannot_join(newcomer);
  CHECK(run.membership.ended(newcomer, End::kFailed, run.now));
  CHECK_GOLDEN(run.only(Kind::kRestart).why);
  CHECK_FALSE(run.membership.can_join());
  run.membership.stop();
  CHECK(run.decide().empty());
}

TEST_CASE("a program that cannot follow generations is detected by its report, progress or silence") {
  Run silent({"0"});
  silent.want({"0", "1"});
  silent.membership.progressed(silent.now);
  CHECK(silent.decide(kHintWait - 1ms).empty());
  silent.only(Kind::kRestart, 1ms);
  Run says_so({"0"});
  says_so.want({"0", "1"});
  says_so.membership.set_follows(false);
  says_so.only(Kind::kRestart);
  Run mute({"0"});
  CHECK(mute.decide().empty());
  mute.want({"0", "1"});
  CHECK(mute.decide(kSilence - 1ms).empty());
  mute.only(Kind::kRestart, 1ms);
}

TEST_CASE("a restart for a new size waits until restart_after, unless a user requested the size") {
  Run run({"0"}, 1, {.survives = true, .restart_after = Membership::Time(1h) + 1min});
  run.membership.set_follows(false);
  run.want({"0", "1"});
  CHECK(run.decide(59s).empty());
  run.only(Kind::kRestart, 1s);
  Run asked({"0"}, 1, {.survives = true, .restart_after = Membership::Time(1h) + 1min});
  asked.membership.set_follows(false);
  asked.want({"0", "1"}, 1, true);
  asked.only(Kind::kRestart);
}

TEST_CASE("without checkpoints, a program that cannot follow generations keeps its size, with a single notice") {
  Run run({"0"}, 1, {.survives = true, .can_restart = false});
  run.membership.set_follows(false);
  run.want({"0", "1"});
  CHECK_GOLDEN(run.only(Kind::kNotice).why);
  CHECK(run.decide(1h).empty());
}

TEST_CASE("when a member is done, no more changes are planned, and newcomers are killed") {
  Run run({"0", "1"});
  run.train();
  run.want({"0", "1", "2", "3"});
  run.decide();
  run.membership.waits(2, run.now);
  CHECK_FALSE(run.membership.finishing());
  CHECK_FALSE(run.membership.ended(0, End::kDone, run.now));
  CHECK(run.membership.finishing());
  const auto actions = run.decide();
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].kind == Kind::kKill);
  CHECK(actions[1].kind == Kind::kKill);
  CHECK(run.membership.ended(2, End::kKilled, run.now));
  CHECK(run.membership.ended(3, End::kKilled, run.now));
  CHECK(run.decide(1h).empty());
  CHECK_FALSE(run.membership.ended(1, End::kFailed, run.now));
}

TEST_CASE("a listed newcomer is killed if the job finishes before it joins") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  run.membership.waits(run.only(Kind::kStart).replica, run.now);
  run.only(Kind::kIssue);
  CHECK_FALSE(run.membership.ended(0, End::kDone, run.now));
  CHECK(run.decide().empty());
  CHECK(run.only(Kind::kKill, kFailureGrace).replica == 1);
  CHECK(run.membership.ended(1, End::kKilled, run.now));
}

TEST_CASE("a stop kills newcomers and lets members that are waiting for others save a checkpoint") {
  Run run({"0", "1"}, 2);
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  run.only(Kind::kStart, kFirstBackOff);
  run.membership.stop();
  const auto actions = run.decide();
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].kind == Kind::kKill);
  CHECK(actions[0].replica == 2);
  CHECK(actions[1].kind == Kind::kIssue);
  CHECK(actions[1].members == Numbers{0});
  CHECK_FALSE(run.membership.ended(0, End::kCheckpointed, run.now));
}

TEST_CASE("a new membership resumes from the target and state of an earlier one") {
  Run run({"0", "1"}), other({"0", "1"});
  const auto both = [&](auto&& change) {
    change(run);
    const MembershipTarget target = other.membership.target();
    other.membership = Membership({.survives = true}, target, other.budget, other.membership.state());
    other.membership.set_follows(true);
    change(other);
    REQUIRE(run.membership.state() == other.membership.state());
    REQUIRE(run.membership.target().devices == other.membership.target().devices);
  };
  both([](Run& each) { each.train(); });
  both([](Run& each) { each.want({"0", "1", "2", "3"}, 2); });
  both([](Run& each) { each.decide(); });
  both([](Run& each) { each.membership.waits(3, each.now); });
  both([](Run& each) { each.membership.ended(2, End::kFailed, each.now); });
  both([](Run& each) { each.decide(kFirstBackOff); });  // starts another newcomer after the failure
  both([](Run& each) { each.decide(kJoinLimit); });     // that newcomer is too late
  CHECK(run.membership.members() == Numbers{0, 1, 3});
  both([](Run& each) { each.train(); });
  both([](Run& each) { each.membership.ended(4, End::kKilled, each.now); });
  both([](Run& each) { each.membership.ended(0, End::kKilled, each.now); });
  both([](Run& each) { each.decide(); });
  CHECK(run.membership.members() == Numbers{1, 3});
  both([](Run& each) { each.membership.broken(1, each.membership.generation(), each.now); });
  both([](Run& each) { each.decide(kHangWait); });  // replica 3 hangs
  both([](Run& each) { each.membership.ended(3, End::kKilled, each.now); });
  both([](Run& each) { each.decide(); });
  both([](Run& each) { each.decide(kMaxBackOff); });
  CHECK(run.membership.members() == Numbers{1});
  both([](Run& each) { each.want({"1"}); });
  both([](Run& each) { each.decide(); });
  CHECK(run.membership.generation() == other.membership.generation());
}

}  // namespace membership_end_test
