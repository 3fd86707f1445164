#include "view/run_summary.h"

#include <doctest/doctest.h>
#include <signal.h>

namespace run_summary_test {

using namespace adaptdl;
using namespace adaptdl::cli;
using sched::Verdict;

namespace {

const RunSummary kAbout{.checkpoints = "/runs/digits-1",
                        .resume = "adaptdl run --checkpoint /runs/digits-1 -- ./digits"};

sched::LaunchResult result(Verdict verdict, int exit_code) {
  sched::LaunchResult result;
  result.outcome = {verdict, exit_code, {}};
  return result;
}

}  // namespace

TEST_CASE("a completed run has no summary") { CHECK(run_summary(result(Verdict::kDone, 0), kAbout) == ""); }

TEST_CASE("after a stop, the summary gives the checkpoint, its epoch and the command to continue") {
  auto stopped = result(Verdict::kCheckpointed, 143);
  stopped.checkpoint = sched::CheckpointNote{.path = "/runs/digits-1/checkpoint-4", .number = 4, .epoch = 2.0};
  CHECK(run_summary(stopped, kAbout) ==
        "adaptdl: stopped with checkpoint '/runs/digits-1/checkpoint-4' (epoch 2)\n"
        "adaptdl: to continue, with any number of replicas:\n"
        "  adaptdl run --checkpoint /runs/digits-1 -- ./digits\n");
}

TEST_CASE("after a failure, the summary gives the last lines, the first failure and the newest checkpoint") {
  auto failed = result(Verdict::kFailed, 139);
  failed.ends = {{.rank = 1, .status = {.signalled = true, .code = SIGSEGV}},
                 {.rank = 0, .status = {.signalled = false, .code = 1}, .asked = true},
                 {.rank = 2, .status = {.signalled = true, .code = SIGKILL}, .asked = true, .killed = true}};
  failed.outcome.first_failure = failed.ends[0];
  failed.last_lines = {"step 7", "about to read page 0"};
  failed.checkpoint = sched::CheckpointNote{.path = "/runs/digits-1/checkpoint-3", .number = 3};
  CHECK(run_summary(failed, kAbout) ==
        "adaptdl: last lines of replica 1:\n"
        "  | step 7\n"
        "  | about to read page 0\n"
        "adaptdl: error: replica 1 failed first: it was killed by SIGSEGV (segmentation fault)\n"
        "adaptdl: other replicas: replica 0 exited with code 1 when stopped, replica 2 was killed by SIGKILL when "
        "stopped\n"
        "adaptdl: the newest checkpoint is '/runs/digits-1/checkpoint-3'; to continue from it:\n"
        "  adaptdl run --checkpoint /runs/digits-1 -- ./digits\n");
}

TEST_CASE("after a stop without a checkpoint, the summary states that none was saved") {
  const std::string with = run_summary(result(Verdict::kNothingSaved, 1), kAbout);
  CHECK(with.find("without saving a checkpoint") != std::string::npos);
  CHECK(with.find("no checkpoint was saved") != std::string::npos);
  const std::string without = run_summary(result(Verdict::kNothingSaved, 1), {});
  CHECK(without == "adaptdl: stopped; no checkpoint was saved because of --no-checkpoint\n");
}

TEST_CASE("shell_command quotes its arguments for the shell") {
  CHECK(shell_command({"adaptdl", "run", "--", "./a b", "it's", "", "$HOME", "--x=1,2"}) ==
        "adaptdl run -- './a b' 'it'\\''s' '' '$HOME' --x=1,2");
}

TEST_CASE("shell_command escapes unprintable characters in bash syntax") {
  CHECK(shell_command({"a\nb", "it's \\ \x1b[2J", "\u202e\xff", "ü"}) ==
        R"($'a\x0ab' $'it\'s \\ \x1b[2J' $'\u202e\xff' 'ü')");
}

}  // namespace run_summary_test
