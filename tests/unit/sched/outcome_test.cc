#include "local/replica/outcome.h"

#include <doctest/doctest.h>
#include <signal.h>

#include "golden.h"

namespace outcome_test {

using namespace adaptdl::sched;

namespace {

ReplicaEnd exited(int rank, int code) { return {.rank = rank, .status = {.signalled = false, .code = code}}; }
ReplicaEnd signalled(int rank, int number) { return {.rank = rank, .status = {.signalled = true, .code = number}}; }
ReplicaEnd asked(ReplicaEnd end) {
  end.asked = true;
  return end;
}
ReplicaEnd killed(ReplicaEnd end) {
  end.killed = true;
  return end;
}

struct Expected {
  Verdict verdict;
  int exit_code;
};

void check(const std::vector<ReplicaEnd>& ends, bool new_checkpoint, Expected expected) {
  const Outcome outcome = judge({.ends = ends}, new_checkpoint);
  CHECK(outcome.verdict == expected.verdict);
  CHECK(outcome.exit_code == expected.exit_code);
  CHECK(outcome.first_failure.has_value() == (expected.verdict == Verdict::kFailed));
}

}  // namespace

TEST_CASE("a run is done if all replicas exit with 0, even after a late stop request") {
  check({exited(0, 0), exited(1, 0)}, false, {Verdict::kDone, 0});
  check({asked(exited(0, 0)), asked(exited(1, 0))}, true, {Verdict::kDone, 0});
}

TEST_CASE("a run exits with 143 only if a new checkpoint was saved") {
  check({asked(exited(0, 143)), asked(exited(1, 143))}, true, {Verdict::kCheckpointed, 143});
  check({asked(exited(0, 143)), asked(exited(1, 143))}, false, {Verdict::kNothingSaved, 1});
  check({exited(0, 143), exited(1, 143)}, true, {Verdict::kCheckpointed, 143});  // stopped by another process
}

TEST_CASE("death by the launcher's SIGTERM is not a failure") {
  check({asked(signalled(0, SIGTERM))}, false, {Verdict::kNothingSaved, 1});
  check({asked(signalled(0, SIGTERM))}, true, {Verdict::kCheckpointed, 143});  // a script whose program saved
}

TEST_CASE("the first failure determines the exit code") {
  check({exited(1, 7), asked(exited(0, 1))}, false, {Verdict::kFailed, 7});
  check({signalled(1, SIGKILL), asked(exited(0, 1))}, false, {Verdict::kFailed, 137});
  check({signalled(0, SIGSEGV)}, false, {Verdict::kFailed, 139});
  const Outcome outcome = judge({.ends = {exited(2, 0), exited(1, 7), exited(0, 9)}}, false);
  CHECK(outcome.first_failure->rank == 1);
}

TEST_CASE("a replica that fails after a stop request makes the run fail, even with a new checkpoint") {
  check({asked(exited(0, 143)), asked(exited(1, 3))}, true, {Verdict::kFailed, 3});
}

TEST_CASE("the exit code of a failure is never 143") { check({signalled(0, SIGTERM)}, true, {Verdict::kFailed, 1}); }

TEST_CASE("a replica that the launcher killed has not failed") {
  CHECK_FALSE(is_failure(killed(signalled(0, SIGKILL))));
  CHECK(is_failure(signalled(0, SIGKILL)));
  CHECK(is_failure(asked(signalled(0, SIGKILL))));
}

TEST_CASE("an expired grace period has its own verdict, unless all replicas exited with 0") {
  AttemptEnd attempt{.ends = {asked(exited(0, 143)), killed(asked(signalled(1, SIGKILL)))}, .grace_expired = true};
  CHECK(judge(attempt, true).verdict == Verdict::kGraceExpired);
  CHECK(judge(attempt, true).exit_code == 1);
  attempt.ends = {exited(0, 0), killed(exited(1, 0))};
  CHECK(judge(attempt, false).verdict == Verdict::kDone);
}

TEST_CASE("a second Ctrl-C results in exit code 130, regardless of how the replicas ended") {
  CHECK(judge({.ends = {exited(0, 3)}, .killed_at_once = true}, true).exit_code == 130);
  CHECK(judge({.ends = {killed(signalled(0, SIGKILL))}, .killed_at_once = true}, false).verdict == Verdict::kKilled);
}

TEST_CASE("simultaneous ends with equal places are ordered: failures by signal, failures by exit code, other ends") {
  std::vector<ReplicaEnd> ends = {exited(0, 1), asked(signalled(1, SIGTERM)), exited(2, 143), signalled(3, SIGKILL),
                                  exited(4, 1)};
  order_simultaneous(ends);
  std::vector<int> ranks;
  for (const ReplicaEnd& end : ends) ranks.push_back(end.rank);
  CHECK(ranks == std::vector<int>{3, 0, 4, 1, 2});
}

TEST_CASE("simultaneous ends are ordered by their place in the exit order first, and then by cause") {
  std::vector<ReplicaEnd> ends = {exited(0, 1), signalled(1, SIGSEGV), exited(2, 7)};
  ends[0].place = 2;
  ends[1].place = 1;
  order_simultaneous(ends);
  CHECK(ends[0].rank == 2);
  CHECK(ends[1].rank == 1);
  CHECK(ends[2].rank == 0);
}

TEST_CASE("an external SIGKILL is the first failure even if its consequences were noticed first") {
  const Outcome outcome =
      judge({.ends = {exited(0, 1), asked(signalled(1, SIGKILL)), killed(asked(signalled(2, SIGKILL)))}}, false);
  CHECK(outcome.first_failure->rank == 1);
  CHECK(outcome.exit_code == 137);
  CHECK(judge({.ends = {exited(0, 1), killed(asked(signalled(2, SIGKILL)))}}, false).first_failure->rank == 0);
  CHECK(judge({.ends = {signalled(0, SIGSEGV), asked(signalled(1, SIGKILL))}}, false).first_failure->rank == 0);
}

TEST_CASE("a replica that another replica reports as lost counts as the earlier failure") {
  ReplicaEnd consequence = exited(0, 1);
  consequence.last_lines = {"step 23", "error: replica 2 left the job during allreduce #24 (connection closed)"};
  Outcome outcome = judge({.ends = {consequence, asked(exited(1, 1)), asked(signalled(2, SIGSEGV))}}, false);
  CHECK(outcome.first_failure->rank == 2);
  CHECK(outcome.exit_code == 139);

  // Replica 2 failed only because replica 1 had left.
  ReplicaEnd second = asked(exited(2, 1));
  second.last_lines = {"error: replica 1 left the job before the first call (connection closed)"};
  outcome = judge({.ends = {consequence, second, asked(exited(1, 7))}}, false);
  CHECK(outcome.first_failure->rank == 1);

  // A replica that is done or exited as requested has not failed, and an unknown replica may be on another machine.
  CHECK(judge({.ends = {consequence, exited(2, 0)}}, false).first_failure->rank == 0);
  CHECK(judge({.ends = {consequence, asked(exited(2, 143))}}, false).first_failure->rank == 0);
  CHECK(judge({.ends = {consequence}}, false).first_failure->rank == 0);

  // If two replicas report the loss of each other, the end that was noticed first counts.
  second.last_lines = {"error: replica 0 left the job after call #3 (connection closed)"};
  CHECK(judge({.ends = {consequence, second}}, false).first_failure->rank == 0);
  CHECK(judge({.ends = {consequence, exited(1, 1), second}}, false).first_failure->rank == 0);

  // Losses that the replica survived do not count: those before the last loss, and all losses before a crash.
  consequence.last_lines = {"error: replica 1 left the job during allreduce #1 (connection closed)",
                            "error: replica 2 left the job during allreduce #24 (connection closed)",
                            "adaptdl: warning: generation 2 failed: replica 1 left the job before the first call"};
  CHECK(judge({.ends = {consequence, exited(1, 1), exited(2, 7)}}, false).first_failure->rank == 2);
  consequence.status = {.signalled = true, .code = SIGSEGV};
  CHECK(judge({.ends = {consequence, exited(2, 7)}}, false).first_failure->rank == 0);
}

TEST_CASE("the description of an end gives the exit code or the signal, and whether memory ran out") {
  CHECK_GOLDEN(describe_end(exited(0, 3)));
  CHECK_GOLDEN(describe_end(signalled(0, SIGSEGV)));
  ReplicaEnd end = signalled(0, SIGKILL);
  end.out_of_memory = true;
  CHECK_GOLDEN(describe_end(end));
}

}  // namespace outcome_test
