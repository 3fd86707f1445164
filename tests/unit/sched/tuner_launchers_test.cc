// Tests that a search detects launchers of an earlier search, so that it does not start their trials too.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "temporary_directory.h"
#include "tuner/local_trial_runner.h"

namespace adaptdl::sched::tune::tuner_launchers_test {

namespace fs = std::filesystem;

TEST_CASE("a live launcher is detected by other searches, even before its run begins") {
  const ::testing::TemporaryDirectory directory;
  // In place of `adaptdl run`, the search starts a program that exits once the gate is opened.
  const fs::path launcher = directory.path() / "launcher", gate = directory.path() / "gate";
  std::ofstream(launcher) << "#!/bin/sh\nread line < gate\n";
  fs::permissions(launcher, fs::perms::owner_all);
  REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  LocalTrialPlan plan;
  plan.study = "tuner-launchers-test";
  plan.directory = plan.working_directory = directory.path();
  plan.launcher = launcher;
  plan.command = {"program"};
  plan.metric = "accuracy";
  LocalTrialRunner first(plan);
  const LocalTrialRunner second(plan);
  CHECK_FALSE(second.any_previous_launcher());
  first.start(0, {});
  CHECK(second.any_previous_launcher());
  CHECK(second.previous_runs(1).empty());
  std::ofstream(gate).close();
  while (first.is_active(0)) first.poll();
  CHECK_FALSE(second.any_previous_launcher());
}

}  // namespace adaptdl::sched::tune::tuner_launchers_test
