// Tests what a journal does to its file when processes are killed, when several processes write, and when the file is
// damaged.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "error_of.h"
#include "golden.h"
#include "tune/journal/journal.h"
#include "tune/journal/journal_lock.h"
#include "tune_journal_support.h"

namespace adaptdl::sched::tune::tune_journal_file_test {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using ::testing::error_of;
using ::testing::says;
using Scene = JournalScene;

TEST_CASE("an incomplete last line is ignored, and removed before the next append") {
  const Scene scene;
  {
    Journal journal(scene.file);
    run_trial(journal, journal.create_study("a", Direction::kMinimize, "loss"), 1);
  }
  const std::string whole = text_of(scene.file);
  const std::string line = R"({"op_code":4,"worker_id":"w","study_id":0,"datetime_start":null})";
  for (std::size_t size = 1; size <= line.size(); ++size) {
    write_text(scene.file, whole + line.substr(0, size));
    Journal journal(scene.file);
    CHECK(journal.find("a")->trials.size() == 1);
    // A line that lacks only its newline is ignored until the next append completes it.
    const int id = journal.create_trial(0, TrialState::kRunning);
    CHECK(id == (size == line.size() ? 2 : 1));
    CHECK(Journal(scene.file).find("a")->trials.size() == static_cast<std::size_t>(id) + 1);
    CHECK(text_of(scene.file).starts_with(whole + (size == line.size() ? line + '\n' : std::string())));
  }
}

TEST_CASE("a damaged line is reported by number, and the lines before it are kept" * doctest::test_suite("slow")) {
  const Scene scene;
  Journal journal(scene.file);
  const int study = journal.create_study("a", Direction::kMinimize, "loss");
  const std::string good = text_of(scene.file),
                    more = R"({"op_code":4,"worker_id":"w","study_id":0,"datetime_start":null})"
                           "\n";
  const auto error_with = [&](const std::string& damage) {
    write_text(scene.file, good + damage + '\n' + more);
    const std::string error = error_of([&] { Journal other(scene.file); });
    CHECK_MESSAGE(says(error, scene.file.string() + ":3: "), error);
    CHECK_MESSAGE(says(error, "; restore the file from a backup or delete the line"), error);
    return error;
  };
  for (
      const char* const damage :
      {"",
       "{",
       "[]",
       "3",
       "{\"op_code\":4,\"wor{\"op_code\":4}",
       "{}",
       "{\"op_code\":4}",
       "{\"op_code\":9,\"trial_id\":-1} x",
       "\0\0",
       R"({"op_code":6,"trial_id":0,"state":9,"values":null})",
       R"({"op_code":5,"trial_id":0,"param_name":"x"})",
       R"({"op_code":7,"trial_id":0,"step":0.5,"intermediate_value":1})",
       R"({"op_code":7,"trial_id":0,"step":0})",
       R"({"op_code":0,"study_name":"b"})",
       R"({"op_code":0,"study_name":"b","directions":[3]})",
       "{\"op_code\":0,\"study_name\":\"\xff\"}",
       R"({"op_code":4,"study_id":0,"datetime_start":"yesterday"})",
       R"({"op_code":0,"study_name":"\u12"})",
       R"({"op_code":5,"trial_id":0,"param_name":"x","param_value_internal":0,"distribution":"{\"name\": \"Normal\"}"})",
       R"({"op_code":4,"study_id":0,"params":{"x":2},"distributions":{"x":"{\"type\":\"categorical\",\"choices\":[1,2]}"}})"})
    error_with(damage);
  CHECK_GOLDEN(error_with("{\"op_code\":8,\"user_attr\":{\"a\":" + std::string(1000, '[')));
  CHECK_GOLDEN(error_with("{\"op_code\": }"));
  CHECK_FALSE(error_of([&] { journal.refresh(); }).empty());
  CHECK(journal.find("a")->id == study);
  write_text(scene.file, good + more);
  journal.refresh();
  CHECK(journal.find("a")->trials.size() == 1);
}

TEST_CASE("files of other tools are rejected and left unchanged") {
  const Scene scene;
  for (const std::string& text :
       {std::string("SQLite format 3\0 and more", 24), std::string("trial,value\n1,2\n"),
        std::string("{\n  \"a\": 1\n}\n"), std::string(100, '\0'), std::string("\n"), std::string("{\"a\": 1}\n")}) {
    write_text(scene.file, text);
    const std::string error = error_of([&] { Journal other(scene.file); });
    CHECK_MESSAGE(says(error, ":1: "), error);
    CHECK_MESSAGE(says(error, "choose an Optuna journal file or a new file"), error);
    CHECK(text_of(scene.file) == text);
  }
  write_text(scene.file, "{\"a\": 1");  // may be an incomplete line until something is appended
  CHECK_FALSE(error_of([&] { Journal(scene.file).create_study("a", Direction::kMinimize, "loss"); }).empty());
  CHECK(text_of(scene.file) == "{\"a\": 1");
  CHECK_FALSE(fs::exists(fs::symlink_status(scene.lock)));
  CHECK_GOLDEN(error_of([&] { Journal(scene.directory.path() / "none", {.create = false}); }));
  CHECK_GOLDEN(error_of([&] { Journal(scene.directory.path() / "none" / "file"); }));
  CHECK_GOLDEN(error_of([&] { Journal(scene.directory.path()); }));
}

TEST_CASE("a file that was replaced, truncated or changed is rejected") {
  const Scene scene;
  Journal journal(scene.file);
  const int study = journal.create_study("a", Direction::kMinimize, "loss");
  const std::string text = text_of(scene.file);
  const auto error = [&] {
    CHECK_FALSE(error_of([&] { journal.create_trial(study, TrialState::kRunning); }).empty());
    return error_of([&] { journal.refresh(); });
  };
  fs::resize_file(scene.file, text.size() / 2);
  CHECK(says(error(), "was truncated"));
  write_text(scene.file, text.substr(1) + ' ');
  CHECK(says(error(), "was changed"));
  const fs::path other = scene.directory.path() / "other";
  write_text(other, text);
  fs::rename(scene.file, scene.directory.path() / "old");
  CHECK_GOLDEN(error());
  fs::rename(other, scene.file);
  CHECK(says(error(), "was replaced"));
}

TEST_CASE("a failed write leaves the file unchanged") {
  const Scene scene;
  Journal(scene.file).create_study("a", Direction::kMinimize, "loss");
  const std::string text = text_of(scene.file);
  const pid_t pid = start_process([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{text.size() + 10, text.size() + 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Journal journal(scene.file);
    const std::string error = error_of([&] { journal.create_trial(0, TrialState::kRunning); });
    if (!says(error, "cannot write") || !says(error, "too large")) throw Error("not refused: " + error);
  });
  CHECK(status_of(pid) == 0);
  CHECK(text_of(scene.file) == text);
}

TEST_CASE("a stale lock is taken over, but not while the journal still grows" * doctest::test_suite("slow")) {
  const Scene scene;
  Journal journal(scene.file, {.lock_grace = 200ms});
  const auto took = [&](const std::string& name, Journal& by) {
    const auto begin = std::chrono::steady_clock::now();
    by.create_study(name, Direction::kMinimize, "loss");
    CHECK_FALSE(fs::exists(fs::symlink_status(scene.lock)));
    return std::chrono::steady_clock::now() - begin;
  };
  fs::create_symlink("study.journal", scene.lock);
  CHECK(took("a", journal) >= 200ms);
  fs::create_symlink("nowhere/study.journal", scene.lock);  // as Optuna creates it for a relative path
  CHECK(took("b", journal) >= 200ms);
  write_text(scene.lock, "");  // as Optuna's JournalFileOpenLock creates it
  CHECK(took("c", journal) >= 200ms);

  Journal patient(scene.file, {.lock_grace = 2s});
  fs::create_symlink("study.journal", scene.lock);
  const auto begin = std::chrono::steady_clock::now();
  auto longest = 0ns;  // longest time without a change
  std::thread others([&] {
    auto last = begin;
    for (int i = 0; i < 25; ++i) {
      std::this_thread::sleep_for(100ms);
      append_text(scene.file, R"({"op_code":4,"worker_id":"w","study_id":0,"datetime_start":null})"
                              "\n");
      const auto now = std::chrono::steady_clock::now();
      longest = std::max<std::chrono::nanoseconds>(longest, now - last);
      last = now;
    }
    fs::remove(scene.lock);
  });
  const auto time = took("d", patient);
  others.join();
  // The thread may have waited for a core for longer than the grace period.
  CHECK((time >= 2500ms || longest > 2s));
  CHECK(std::distance(fs::directory_iterator(scene.directory.path()), {}) == 1);
}

TEST_CASE("a wait for a stale lock is reported before the lock is taken over" * doctest::test_suite("slow")) {
  const Scene scene;
  Journal journal(scene.file, {.lock_grace = 400ms});
  std::vector<std::string> notices;
  journal.set_notice([&](std::string_view text) {
    CHECK(fs::is_symlink(scene.lock));
    CHECK(journal.studies().empty());
    notices.emplace_back(text);
  });
  fs::create_symlink("study.journal", scene.lock);
  const int study = journal.create_study("a", Direction::kMinimize, "loss");
  REQUIRE(notices.size() == 2);
  CHECK(notices[0] ==
        "waiting for the lock '" + scene.lock.string() + "'; it will be taken over if it does not change for 0.4s");
  CHECK(notices[1].starts_with("taking over the lock '" + scene.lock.string() + "'"));
  journal.create_trial(study, TrialState::kRunning);
  CHECK(notices.size() == 2);
}

TEST_CASE("a lock that another process took over is not removed by its former holder") {
  const Scene scene;
  {
    const JournalLock slow(scene.file, "slow", 10ms);
    CHECK(fs::read_symlink(scene.lock) == "study.journal");
    std::this_thread::sleep_for(20ms);
    fs::remove(scene.lock);
    fs::create_symlink("new", scene.lock);
  }
  CHECK(fs::is_symlink(scene.lock));
}

TEST_CASE("no record is lost when several processes write at once") {
  const Scene scene;
  const int study = Journal(scene.file).create_study("a", Direction::kMinimize, "loss");
  constexpr int kProcesses = 4, kTrials = 25;
  std::vector<pid_t> processes;
  for (int process = 0; process < kProcesses; ++process)
    processes.push_back(start_process([&] {
      Journal journal(scene.file);
      for (int i = 0; i < kTrials; ++i) {
        const int mark = process * kTrials + i;
        const int trial = run_trial(journal, study, mark);
        if (journal.trial(trial)->user_attributes.at("mark") != mark) throw Error("not the trial that was created");
      }
    }));
  for (const pid_t pid : processes) CHECK(status_of(pid) == 0);
  const Journal journal(scene.file);
  const auto& trials = journal.find("a")->trials;
  CHECK(trials.size() == kProcesses * kTrials);
  std::set<int> marks;
  for (const Trial& trial : trials) {
    const int mark = trial.user_attributes.at("mark");
    marks.insert(mark);
    CHECK((trial.id == trial.number && trial.intermediate.size() == 5 &&
           trial.values == std::vector<double>{1.0 * mark}));
  }
  CHECK(marks.size() == trials.size());
}

TEST_CASE("a writer that is killed at any time leaves a valid file that can be continued" *
          doctest::test_suite("slow")) {
  const Scene scene;
  const int study = Journal(scene.file).create_study("a", Direction::kMinimize, "loss");
  std::mt19937 random(1);
  constexpr int kKills = 40;
  std::size_t acknowledged = 0;
  for (int i = 0; i < kKills; ++i) {
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t pid = start_process([&] {
      Journal journal(scene.file, {.lock_grace = 20ms});
      for (int mark = 0;; ++mark) {
        run_trial(journal, study, mark);
        if (::write(pipe[1], "+", 1) != 1) return;
      }
    });
    ::close(pipe[1]);
    char byte = 0;
    // On a slow machine, the other half of the processes may be killed before they have written anything.
    if (i % 2 == 0 && ::read(pipe[0], &byte, 1) == 1) ++acknowledged;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    ::kill(pid, SIGKILL);
    status_of(pid);
    while (::read(pipe[0], &byte, 1) == 1) ++acknowledged;
    ::close(pipe[0]);
    const Journal journal(scene.file);
    const auto& trials = journal.find("a")->trials;
    const auto complete = std::ranges::count(trials, TrialState::kComplete, &Trial::state);
    CHECK(static_cast<std::size_t>(complete) >= acknowledged);
    for (const Trial& trial : trials)
      if (trial.state == TrialState::kComplete) CHECK(trial.intermediate.size() == 5);
  }
  CHECK(acknowledged >= kKills / 2);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_journal_file_test
