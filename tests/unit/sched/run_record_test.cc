#include "local/record/run_record.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "temporary_directory.h"

namespace run_record_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using sched::RunRecord;
using sched::RunStatus;
namespace fs = std::filesystem;

namespace {

RunStatus status(const std::string& state, RunStatus::Time started) {
  RunStatus result;
  result.state = state;
  result.started = started;
  if (state != "running") result.ended = started + 1s;
  return result;
}

const RunStatus::Time kNoon = std::chrono::system_clock::from_time_t(1'700'000'000);

// Writes the record of a run that has ended.
void leave(const fs::path& runs, const std::string& name, const std::string& state, RunStatus::Time started) {
  REQUIRE(RunRecord::named(runs, name).write(status(state, started), ""));
}

std::vector<std::string> names(const fs::path& runs) {
  std::vector<std::string> result;
  for (const sched::RunEntry& run : sched::list_runs(runs)) result.push_back(run.status.name);
  return result;
}

}  // namespace

TEST_CASE("a run's record is read as it was written") {
  const testing::TemporaryDirectory runs;
  RunStatus before = status("failed", kNoon + 123ms);
  before.why = "replica 1 exited with code 3";
  before.wanted = 4;
  before.min = 1;
  before.max = 8;
  before.devices = {"0", "GPU-1"};
  before.progress = {{"epoch", 3}, {"loss", 0.5}};
  before.restarts = 2;
  before.device_seconds = 12.75;
  before.exit_code = 3;
  before.pid = 17;
  before.host = "here";
  before.checkpoints = "/c";
  before.logs = "/l";
  before.command = {"./digits", "--epochs", "a \"b\"\xff"};
  before.resume = "adaptdl run";
  const RunRecord record = RunRecord::named(runs.path(), "job");
  CHECK_FALSE(record.taken_over());
  REQUIRE(record.write(before, "/socket"));
  CHECK(record.taken_over());
  const auto all = sched::list_runs(runs.path());
  REQUIRE(all.size() == 1);
  CHECK(all[0].alive);
  CHECK(all[0].socket == "/socket");
  before.name = "job";
  before.command[2] = "a \"b\"\xef\xbf\xbd";  // U+FFFD, since JSON is UTF-8
  CHECK(sched::to_json(all[0].status) == sched::to_json(before));
  CHECK(all[0].status.started == kNoon + 123ms);
  CHECK(all[0].status.device_seconds == 12.75);
}

TEST_CASE("valid fields of a damaged record are read, and unparsable records are skipped") {
  const testing::TemporaryDirectory runs;
  fs::create_directories(runs.path() / "job");
  std::ofstream(runs.path() / "job" / "run.json") << R"({"state": 7, "replicas": "x", "started": "soon", "min": 2})";
  fs::create_directories(runs.path() / "no-run");
  std::ofstream(runs.path() / "file");
  fs::create_directories(runs.path() / "half");
  std::ofstream(runs.path() / "half" / "run.json") << "{\"state\": ";
  const auto all = sched::list_runs(runs.path());
  REQUIRE(all.size() == 1);
  CHECK(all[0].status.name == "job");
  CHECK(all[0].status.min == 2);
  CHECK(all[0].status.replicas == 0);
}

TEST_CASE("a record is private to its user, even if an older version left it accessible") {
  const testing::TemporaryDirectory directory;
  const fs::path runs = directory.path() / "runs", job = runs / "job", elsewhere = directory.path() / "elsewhere";
  const mode_t before = ::umask(0);
  fs::create_directories(job / "checkpoints" / "checkpoint-0");
  for (const char* name : {"run.json", "run.log", "checkpoints/checkpoint-0/manifest.json"}) std::ofstream(job / name);
  std::ofstream{elsewhere};
  fs::create_symlink(elsewhere, job / "link");
  {
    const RunRecord named = RunRecord::named(runs, "job"), unnamed = RunRecord::unnamed(runs, "program");
    CHECK(named.taken_over());
    for (const RunRecord* record : {&named, &unnamed}) REQUIRE(record->write(status("running", kNoon), ""));
  }
  ::umask(before);
  CHECK(fs::status(runs).permissions() == fs::perms::owner_all);
  for (const auto& entry : fs::recursive_directory_iterator(runs)) {
    CAPTURE(entry.path());
    const auto owners = entry.is_directory() ? fs::perms::owner_all : fs::perms::owner_read | fs::perms::owner_write;
    if (!entry.is_symlink()) CHECK(entry.status().permissions() == owners);
  }
  CHECK((fs::status(elsewhere).permissions() & fs::perms::others_write) != fs::perms::none);
}

TEST_CASE("only one live run can use a name") {
  const testing::TemporaryDirectory runs;
  {
    const RunRecord record = RunRecord::named(runs.path(), "job");
    REQUIRE(record.write(status("running", kNoon), ""));
    CHECK_GOLDEN(::testing::error_of<UsageError>([&] { RunRecord::named(runs.path(), "job"); }));
    CHECK_GOLDEN(::testing::error_of([&] { sched::remove_run(sched::list_runs(runs.path()).at(0), false); }));
  }
  CHECK(RunRecord::named(runs.path(), "job").taken_over());
}

TEST_CASE("a run whose launcher was killed is lost") {
  const testing::TemporaryDirectory runs;
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    const RunRecord record = RunRecord::named(runs.path(), "job");
    record.write(status("running", kNoon), "");
    ::raise(SIGKILL);
  }
  REQUIRE(::waitpid(pid, nullptr, 0) == pid);
  const sched::RunEntry run = sched::find_run(runs.path(), "job");
  CHECK_FALSE(run.alive);
  CHECK_FALSE(sched::is_alive(run));
  CHECK(run.status.state == "lost");
  CHECK_GOLDEN(run.status.why);
  CHECK(run.status.ended.has_value());
}

TEST_CASE("runs are listed by start time and found by name or unambiguous prefix") {
  const testing::TemporaryDirectory runs;
  CHECK(sched::list_runs(runs.path() / "nowhere").empty());
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { sched::find_run(runs.path(), "x"); }));
  leave(runs.path(), "digits-2", "done", kNoon);
  leave(runs.path(), "digits-1", "done", kNoon + 1ms);
  leave(runs.path(), "digits", "done", kNoon + 2ms);
  leave(runs.path(), "lm", "done", kNoon + 3ms);
  CHECK(names(runs.path()) == std::vector<std::string>{"digits-2", "digits-1", "digits", "lm"});
  CHECK(sched::find_run(runs.path(), "l").status.name == "lm");
  CHECK(sched::find_run(runs.path(), "digits").status.name == "digits");
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { sched::find_run(runs.path(), "dig"); }));
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { sched::find_run(runs.path(), "x"); }));
}

TEST_CASE("old runs are pruned, except live runs and runs with checkpoints") {
  const testing::TemporaryDirectory runs;
  for (int i = 0; i < 6; ++i) leave(runs.path(), "run-" + std::to_string(i), "done", kNoon + i * 1s);
  fs::create_directories(runs.path() / "run-0" / "checkpoints" / "checkpoint-0");
  fs::create_directories(runs.path() / "run-1" / "checkpoints");
  const RunRecord living = RunRecord::named(runs.path(), "living");
  REQUIRE(living.write(status("running", kNoon - 1s), ""));
  sched::prune_runs(runs.path(), 3);
  CHECK(names(runs.path()) == std::vector<std::string>{"living", "run-0", "run-3", "run-4", "run-5"});
}

TEST_CASE("records of trials are not pruned while their study exists") {
  const testing::TemporaryDirectory directory;
  const fs::path runs = directory.path() / "runs", studies = directory.path() / "studies";
  const auto leave_trial = [&](const std::string& name, const fs::path& trial) {
    RunStatus ended = status("done", kNoon - 1s);
    ended.checkpoints = trial / "checkpoints";
    REQUIRE(RunRecord::named(runs, name).write(ended, ""));
  };
  for (const char* const trial : {"s/trials/0", "s/trials/1", "removed/trials/0"})
    fs::create_directories(studies / trial);
  leave_trial("s-0", studies / "s" / "trials" / "0");
  leave_trial("s-1", studies / "s" / "trials" / "1");
  leave_trial("removed-0", studies / "removed" / "trials" / "0");
  leave_trial("other", studies / "s" / "trials" / "1");
  leave_trial("other-0", studies / "s" / "trials" / "0");
  for (int i = 0; i < 3; ++i) leave(runs, "run-" + std::to_string(i), "done", kNoon + i * 1s);
  fs::remove_all(studies / "removed");
  sched::prune_runs(runs, 2);
  CHECK(names(runs) == std::vector<std::string>{"s-0", "s-1", "run-1", "run-2"});
}

TEST_CASE("removing a run deletes its socket and, unless they are kept, its checkpoints") {
  const testing::TemporaryDirectory runs;
  const fs::path socket = runs.path() / "socket";
  for (const bool keep : {true, false}) {
    std::ofstream{socket};
    REQUIRE(RunRecord::named(runs.path(), "job").write(status("stopped", kNoon), socket));
    fs::create_directories(runs.path() / "job" / "checkpoints" / "checkpoint-0");
    fs::create_directories(runs.path() / "job" / "logs");
    sched::remove_run(sched::find_run(runs.path(), "job"), keep);
    CHECK_FALSE(fs::exists(socket));
    CHECK_FALSE(fs::exists(runs.path() / "job" / "logs"));
    CHECK(fs::exists(runs.path() / "job" / "checkpoints" / "checkpoint-0") == keep);
    CHECK(names(runs.path()).empty());
  }
  CHECK_FALSE(fs::exists(runs.path() / "job"));
}

}  // namespace run_record_test
