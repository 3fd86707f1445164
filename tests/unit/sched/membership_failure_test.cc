// Tests runs whose members die, hang, or lose each other.
#include <doctest/doctest.h>

#include "golden.h"
#include "membership_support.h"

namespace membership_failure_test {

using namespace adaptdl::sched;
using namespace testing;

TEST_CASE("if enough members survive a kill, they continue at once, and a replacement joins later") {
  Run run({"0", "1", "2"}, 2);
  run.train();
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  const auto issued = run.only(Kind::kIssue);
  CHECK(issued.members == Numbers{1, 2});
  CHECK(issued.generation == 1);
  CHECK(run.decide(kFirstBackOff - 1ms).empty());
  run.membership.waits(run.only(Kind::kStart, 1ms).replica, run.now);
  CHECK(run.decide(1h).empty());  // a replacement joins only once the others are training again
  run.train();
  CHECK(run.only(Kind::kIssue).members == Numbers{1, 2, 3});
  CHECK(run.membership.devices() == Devices{"1", "2", "0"});
  CHECK(run.budget.used() == 0);
}

TEST_CASE("if too few members survive, they wait for replacements") {
  Run run({"0", "1"}, 2);
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.decide().empty());
  const auto started = run.only(Kind::kStart, kFirstBackOff);
  CHECK(started.rank == 1);
  CHECK(started.size == 2);
  CHECK(run.decide(1s).empty());
  run.membership.broken(0, 0, run.now);
  CHECK(run.decide(kHangWait).empty());  // a waiting member is not considered hung
  run.membership.waits(started.replica, run.now);
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 2});
}

TEST_CASE("a run survives another death while its members regroup") {
  Run run({"0", "1", "2"}, 1);
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 2});
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  const auto issued = run.only(Kind::kIssue);
  CHECK(issued.members == Numbers{2});
  CHECK(issued.generation == 2);
}

TEST_CASE("several deaths at once cause one new generation, and the last member's death ends the run") {
  Run run({"0", "1", "2"}, 1);
  run.train();
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  CHECK(run.membership.ended(2, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{1});
  CHECK_FALSE(run.membership.ended(1, End::kKilled, run.now));
}

TEST_CASE("a SIGKILL does not consume the failure budget, but other failures do") {
  Run run({"0", "1", "2", "3"}, 1, {.survives = true}, 1);
  run.train();
  CHECK(run.membership.ended(3, End::kKilled, run.now));
  CHECK(run.budget.used() == 0);
  run.only(Kind::kIssue);
  run.train();
  CHECK(run.membership.ended(2, End::kFailed, run.now));
  CHECK(run.budget.used() == 1);
  run.decide();
  CHECK_FALSE(run.membership.ended(1, End::kFailed, run.now));
}

TEST_CASE("a death ends a run that does not survive deaths or whose program does not follow generations") {
  Run fixed({"0", "1"}, 2, {.survives = false});
  fixed.train();
  CHECK_FALSE(fixed.membership.ended(1, End::kKilled, fixed.now));
  Run deaf({"0", "1"});
  CHECK_FALSE(deaf.membership.ended(1, End::kKilled, deaf.now));
}

TEST_CASE("a run that needs replacements fails if they repeatedly fail to join") {
  Run run({"0", "1"}, 2);
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  for (int i = 0; i < kNewcomerTries; ++i) {
    CHECK(run.membership.ended(run.only(Kind::kStart, kMaxBackOff).replica, End::kFailed, run.now));
  }
  CHECK_GOLDEN(run.only(Kind::kFail).why);
}

TEST_CASE("the failure of a listed member that never trained ends only that member") {
  Run run({"0"}, 1, {.survives = true}, 0);
  run.train();
  run.want({"0", "1"});
  run.membership.waits(run.only(Kind::kStart).replica, run.now);
  run.only(Kind::kIssue);
  CHECK(run.membership.ended(1, End::kFailed, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{0});
}

TEST_CASE("the run ends when no member that has trained is left") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  run.decide();
  run.membership.waits(1, run.now);
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 1});
  CHECK_FALSE(run.membership.ended(0, End::kKilled, run.now));
}

TEST_CASE("a member that does not report a broken group after others have done so is killed as hung") {
  Run run({"0", "1", "2"}, 1);
  run.train();
  run.membership.broken(1, 0, run.now);
  run.decide();
  run.membership.broken(2, 0, run.now + 1s);
  CHECK(run.decide(kHangWait - 1ms).empty());
  const auto killed = run.only(Kind::kKill, 1ms);
  CHECK(killed.replica == 0);
  CHECK(killed.hung);
  CHECK(run.decide(1s).empty());
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{1, 2});
}

TEST_CASE("the others continue without a hung member that does not end after SIGKILL, even during a stop") {
  for (const bool stops : {false, true}) {
    CAPTURE(stops);
    Run run({"0", "1", "2"}, 1);
    run.train();
    if (stops) run.membership.stop();
    run.membership.broken(0, 0, run.now);
    run.membership.broken(2, 0, run.now);
    CHECK(run.only(Kind::kKill, kHangWait).replica == 1);
    CHECK(run.decide(kKillWait - 1ms).empty());
    const auto actions = run.decide(1ms);
    REQUIRE(actions.size() == 2);
    CHECK(actions[0].kind == Kind::kGiveUp);
    CHECK(actions[1].kind == Kind::kIssue);
    CHECK(actions[1].members == Numbers{0, 2});
    run.train();
    CHECK(run.decide(1h).empty());  // its device is not free until it has ended
    CHECK(run.membership.ended(1, End::kKilled, run.now));
    CHECK(run.budget.used() == 0);
    if (!stops) CHECK(run.only(Kind::kStart).device == "1");
  }
}

TEST_CASE("a job that has given up hung members still grows on other devices, but waits below its minimum size") {
  Run run({"0", "1", "2"}, 2);
  run.train();
  run.membership.broken(0, 0, run.now);
  CHECK(run.decide(kHangWait).size() == 2);
  const auto actions = run.decide(kKillWait);
  REQUIRE(actions.size() == 2);
  CHECK_GOLDEN(actions[0].why + '|' + actions[1].why);
  CHECK(run.decide(1h).empty());
  run.want({"0", "1", "2", "3"}, 2);
  const auto started = run.only(Kind::kStart);
  CHECK(started.device == "3");
  run.membership.waits(started.replica, run.now);
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 3});
}

TEST_CASE("a run that cannot continue without a hung member fails if the member does not end after SIGKILL") {
  Run run({"0", "1"}, 2, {.survives = false});
  run.train();
  run.membership.broken(0, 0, run.now);
  CHECK(run.only(Kind::kKill, kHangWait).replica == 1);
  CHECK_GOLDEN(run.only(Kind::kFail, kKillWait).why);
}

TEST_CASE("when all members report a broken group, they regroup at once") {
  Run run({"0", "1"}, 1);
  run.train();
  run.membership.broken(0, 0, run.now);
  CHECK(run.decide().empty());
  run.membership.broken(1, 0, run.now);
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 1});
  run.membership.broken(0, 0, run.now);  // a report of the previous generation is answered with the new one
  CHECK(run.decide(1h).empty());
}

TEST_CASE("survivors of deaths during a stop save a checkpoint, even below the minimum size") {
  Run run({"0", "1", "2"}, 3);
  run.train();
  run.membership.stop();
  CHECK(run.decide().empty());
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{1, 2});
  CHECK(run.membership.ended(2, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{1});
  CHECK_FALSE(run.membership.ended(1, End::kCheckpointed, run.now));
  CHECK(run.decide(1h).empty());
}

TEST_CASE("a member that hangs during a stop is killed, and the others regroup to save a checkpoint") {
  Run run({"0", "1"});
  run.train();
  run.membership.stop();
  run.membership.broken(0, 0, run.now);
  CHECK(run.decide(kHangWait - 1ms).empty());
  const auto killed = run.only(Kind::kKill, 1ms);
  CHECK(killed.replica == 1);
  CHECK(killed.hung);
  CHECK(run.decide(1s).empty());  // no generation is issued before the hung member has exited
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{0});
}

TEST_CASE("a failure during a stop ends the run, and so does any death after give_up()") {
  Run failed({"0", "1"});
  failed.train();
  failed.membership.stop();
  CHECK_FALSE(failed.membership.ended(0, End::kFailed, failed.now));
  Run killed({"0", "1"});
  killed.train();
  killed.membership.give_up();
  CHECK_FALSE(killed.membership.ended(0, End::kKilled, killed.now));
  CHECK(killed.decide().empty());
}

TEST_CASE("a newcomer that was listed before a stop does not hold up the members") {
  Run run({"0", "1"});
  run.train();
  run.want({"0", "1", "2"});
  run.membership.waits(run.only(Kind::kStart).replica, run.now);
  run.only(Kind::kIssue);
  run.membership.stop();
  CHECK(run.decide().empty());  // the newcomer may still join the others to save a checkpoint
  SUBCASE("the newcomer is killed after the members have exited") {
    CHECK_FALSE(run.membership.ended(0, End::kCheckpointed, run.now));
    CHECK_FALSE(run.membership.ended(1, End::kCheckpointed, run.now));
    CHECK(run.decide().empty());  // the newcomer may be about to exit, too
    CHECK(run.only(Kind::kKill, kFailureGrace).replica == 2);
    CHECK(run.membership.ended(2, End::kKilled, run.now));
  }
  SUBCASE("the members regroup after the newcomer has failed") {
    CHECK(run.membership.ended(2, End::kFailed, run.now));
    CHECK(run.only(Kind::kIssue).members == Numbers{0, 1});
  }
}

TEST_CASE("a newcomer's report of a broken group during a stop does not mark members as hung") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  const int newcomer = run.only(Kind::kStart).replica;
  run.membership.waits(newcomer, run.now);
  run.only(Kind::kIssue);
  run.membership.stop();
  run.membership.broken(newcomer, 1, run.now);
  CHECK(run.decide(1h).empty());
}

TEST_CASE("survivors save a checkpoint during a stop, even in a run that does not survive deaths") {
  Run run({"0", "1"}, 2, {.survives = false});
  run.train();
  run.membership.stop();
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{1});
}

TEST_CASE("a member that reports a broken group after the others have finished is killed") {
  Run run({"0", "1"});
  run.train();
  CHECK_FALSE(run.membership.ended(0, End::kDone, run.now));
  run.membership.broken(1, 0, run.now);
  CHECK(run.decide(1s).empty());
  const auto killed = run.only(Kind::kKill, 2s);
  CHECK(killed.replica == 1);
  CHECK(killed.hung);
}

TEST_CASE("when a death ends a run, survivors save a checkpoint if they trained, follow generations and can restart") {
  Run run({"0", "1"}, 2, {.survives = false});
  run.train();
  CHECK_FALSE(run.membership.can_save_without(0));  // no step has been completed yet
  run.membership.progressed(run.now);
  CHECK(run.membership.can_save_without(0));
  CHECK(run.membership.can_save_without(1));
  CHECK_FALSE(run.membership.can_save_without(2));
  run.membership.set_follows(false);
  CHECK_FALSE(run.membership.can_save_without(0));
  run.membership.set_follows(true);
  run.membership.stop();
  CHECK_FALSE(run.membership.can_save_without(0));

  Run alone({"0"}, 1, {.survives = false});
  alone.train();
  alone.membership.progressed(alone.now);
  CHECK_FALSE(alone.membership.can_save_without(0));
  Run survivors({"0", "1"}, 1, {.survives = true});
  survivors.train();
  survivors.membership.progressed(survivors.now);
  CHECK_FALSE(survivors.membership.can_save_without(0));
  Run without_place({"0", "1"}, 2, {.survives = false, .can_restart = false});
  without_place.train();
  without_place.membership.progressed(without_place.now);
  CHECK_FALSE(without_place.membership.can_save_without(0));
}

TEST_CASE("a newcomer's report of a broken group does not start the hang timeout for members") {
  Run run({"0", "1"});
  run.train();
  run.want({"0", "1", "2"});
  const int newcomer = run.only(Kind::kStart).replica;
  run.membership.waits(newcomer, run.now);
  run.only(Kind::kIssue);
  run.membership.broken(newcomer, 1, run.now);
  CHECK(run.decide(1h).empty());
  run.membership.broken(0, 1, run.now);
  CHECK(run.decide(kHangWait - 1ms).empty());
  CHECK(run.only(Kind::kKill, 1ms).replica == 1);
}

}  // namespace membership_failure_test
