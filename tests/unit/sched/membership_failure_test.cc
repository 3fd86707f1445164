// Tests runs whose members die, hang, or lose each other.
#include <doctest/doctest.h>

#include "membership_support.h"

namespace membership_failure_test {

using namespace adaptdl::sched;
using namespace testing;

TEST_CASE("a death is survived at once by those that are enough, and a replacement joins later") {
  Run run({"0", "1", "2"}, 2);
  run.train();
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  const auto issued = run.only(Kind::kIssue);
  CHECK(issued.members == Numbers{1, 2});
  CHECK(issued.generation == 1);
  CHECK(run.decide(kFirstBackOff - 1ms).empty());
  run.membership.waits(run.only(Kind::kStart, 1ms).replica, run.now);
  CHECK(run.decide(1h).empty());  // a replacement joins only once the others train again
  run.train();
  CHECK(run.only(Kind::kIssue).members == Numbers{1, 2, 3});
  CHECK(run.membership.devices() == Devices{"1", "2", "0"});
  CHECK(run.budget.used() == 0);
}

TEST_CASE("too few survivors wait for replacements") {
  Run run({"0", "1"}, 2);
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.decide().empty());
  const auto started = run.only(Kind::kStart, kFirstBackOff);
  CHECK(started.rank == 1);
  CHECK(started.size == 2);
  CHECK(run.decide(1s).empty());
  run.membership.broken(0, 0, run.now);
  CHECK(run.decide(kHangWait).empty());  // a waiting member does not count as hung
  run.membership.waits(started.replica, run.now);
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 2});
}

TEST_CASE("a second death in the middle of a regrouping is survived too") {
  Run run({"0", "1", "2"}, 1);
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 2});
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  const auto issued = run.only(Kind::kIssue);
  CHECK(issued.members == Numbers{2});
  CHECK(issued.generation == 2);
}

TEST_CASE("several deaths at once make one generation; the last one is the end of all") {
  Run run({"0", "1", "2"}, 1);
  run.train();
  CHECK(run.membership.ended(0, End::kKilled, run.now));
  CHECK(run.membership.ended(2, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{1});
  CHECK_FALSE(run.membership.ended(1, End::kKilled, run.now));
}

TEST_CASE("a SIGKILL costs no budget, and other failures do") {
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

TEST_CASE("a death ends a run that is not to survive any, or whose program cannot") {
  Run fixed({"0", "1"}, 2, {.survives = false});
  fixed.train();
  CHECK_FALSE(fixed.membership.ended(1, End::kKilled, fixed.now));
  Run deaf({"0", "1"});
  CHECK_FALSE(deaf.membership.ended(1, End::kKilled, deaf.now));
}

TEST_CASE("replacements that cannot come fail the run that needs them") {
  Run run({"0", "1"}, 2);
  run.train();
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  for (int i = 0; i < kNewcomerTries; ++i) {
    CHECK(run.membership.ended(run.only(Kind::kStart, kLongestBackOff).replica, End::kFailed, run.now));
  }
  CHECK(run.only(Kind::kFail).why == "only 1 replica left, but at least 2 required, and replacements cannot join");
}

TEST_CASE("a member that was listed but never trained ends only itself") {
  Run run({"0"}, 1, {.survives = true}, 0);
  run.train();
  run.want({"0", "1"});
  run.membership.waits(run.only(Kind::kStart).replica, run.now);
  run.only(Kind::kIssue);
  CHECK(run.membership.ended(1, End::kFailed, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{0});
}

TEST_CASE("when all who trained are gone, those that were only listed have nothing to go on from") {
  Run run({"0"});
  run.train();
  run.want({"0", "1"});
  run.decide();
  run.membership.waits(1, run.now);
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 1});
  CHECK_FALSE(run.membership.ended(0, End::kKilled, run.now));
}

TEST_CASE("who does not say that the group broke while others do is taken to hang, and killed as such") {
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

TEST_CASE("when all say that the group broke, they meet again at once") {
  Run run({"0", "1"}, 1);
  run.train();
  run.membership.broken(0, 0, run.now);
  CHECK(run.decide().empty());
  run.membership.broken(1, 0, run.now);
  CHECK(run.only(Kind::kIssue).members == Numbers{0, 1});
  run.membership.broken(0, 0, run.now);  // a report of the previous generation is answered with the new one
  CHECK(run.decide(1h).empty());
}

TEST_CASE("those that a death leaves while the run stops save a checkpoint, however few they are") {
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

TEST_CASE("a member that hangs while the run stops is killed, and the others save") {
  Run run({"0", "1"});
  run.train();
  run.membership.stop();
  run.membership.broken(0, 0, run.now);
  CHECK(run.decide(kHangWait - 1ms).empty());
  const auto killed = run.only(Kind::kKill, 1ms);
  CHECK(killed.replica == 1);
  CHECK(killed.hung);
  CHECK(run.decide(1s).empty());  // not before the hung member has exited
  CHECK(run.membership.ended(1, End::kKilled, run.now));
  CHECK(run.only(Kind::kIssue).members == Numbers{0});
}

TEST_CASE("a failure while the run stops is the end of all, and so is any death once all are killed") {
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

TEST_CASE("a listed newcomer is killed once the members have stopped, and its failure does not hold them up") {
  Run run({"0", "1"});
  run.train();
  run.want({"0", "1", "2"});
  run.membership.waits(run.only(Kind::kStart).replica, run.now);
  run.only(Kind::kIssue);
  run.membership.stop();
  CHECK(run.decide().empty());  // the newcomer may still join them to save
  SUBCASE("they have exited") {
    CHECK_FALSE(run.membership.ended(0, End::kCheckpointed, run.now));
    CHECK_FALSE(run.membership.ended(1, End::kCheckpointed, run.now));
    CHECK(run.decide().empty());  // the newcomer may be about to exit, too
    CHECK(run.only(Kind::kKill, kFailureGrace).replica == 2);
    CHECK(run.membership.ended(2, End::kKilled, run.now));
  }
  SUBCASE("it fails") {
    CHECK(run.membership.ended(2, End::kFailed, run.now));
    CHECK(run.only(Kind::kIssue).members == Numbers{0, 1});
  }
}

TEST_CASE("a newcomer that was listed and lost the others does not make those that save seem to hang") {
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

TEST_CASE("those that are left save when a run stops that is not to survive any death") {
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

TEST_CASE("those that are left can save when a death ends the run, if they follow, have trained and have a place") {
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

TEST_CASE("a newcomer that lost the others does not start the clock for members that make a long step") {
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
