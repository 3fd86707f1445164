#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "error_of.h"
#include "event_bytes.h"
#include "temporary_directory.h"
#include "tuner/trial_results.h"

namespace adaptdl::sched::tune::tuner_results_test {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using std::chrono::milliseconds;

std::ptrdiff_t open_descriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

// The directory of a trial, with a clock that the test advances.
struct ResultScene {
  void append(const std::string& file, const std::string& text) const {
    fs::create_directories((directory.path() / file).parent_path());
    std::ofstream(directory.path() / file, std::ios::app | std::ios::binary) << text;
  }
  void report(int value) const { append("results.jsonl", fmt::format("{{\"loss\": {}}}\n", value)); }
  void print(int value) const { append("logs/rank-0.log", fmt::format("{{\"loss\": {}}}\n", value)); }
  void log(int value, const std::string& file = "a.tfevents") const {
    append("tensorboard/" + file,
           scalar_record(value, static_cast<std::uint64_t>(value), "loss", static_cast<float>(value)));
  }
  std::string source() const {
    std::ifstream file(directory.path() / "source");
    std::string name;
    std::getline(file, name);
    return name;
  }

  TrialResults open() const {
    return {directory.path(), "loss", [](std::string_view) {}};
  }
  // Returns the values of the next results.
  std::string read(TrialResults& results) const { return text_of(results.read(now)); }
  std::string finish(TrialResults& results) const { return text_of(results.finish(now)); }
  static std::string text_of(const std::vector<Result>& results) {
    std::string text;
    for (const Result& result : results) text += fmt::format("{}{}", text.empty() ? "" : " ", result.value);
    return text;
  }

  ::testing::TemporaryDirectory directory;
  TrialResults::Clock::time_point now{};
};

TEST_CASE("closed results hold no descriptor and resume where they stopped") {
  const ResultScene scene;
  scene.append("results.jsonl", "{\"loss\": 1}\n{\"loss\": 2}\n{\"lo");
  scene.append("logs/rank-0.log", "some text\n");
  scene.append("tensorboard/a.tfevents", "");
  const auto before = open_descriptors();
  TrialResults results = scene.open();
  CHECK(scene.read(results) == "1 2");
  CHECK(open_descriptors() > before);
  results.close();
  CHECK(open_descriptors() == before);
  scene.append("results.jsonl", "ss\": 3}\n");
  CHECK(scene.finish(results) == "3");
}

TEST_CASE("a backlog is read in parts") {
  const ResultScene scene;
  constexpr int kLines = 100'000;
  std::string text;
  for (int i = 0; i < kLines; ++i) text += fmt::format("{{\"loss\": {}, \"step\": {}}}\n", i, i);
  scene.append("results.jsonl", text);
  TrialResults results = scene.open();
  std::size_t count = results.read().size();
  CHECK(count < kLines);
  while (results.has_more()) count += results.read().size();
  CHECK(count == kLines);
}

TEST_CASE("an unreadable results file is an error, but a missing one is not") {
  const ResultScene scene;
  TrialResults none = scene.open();
  CHECK(scene.read(none) == "");
  fs::create_directory(scene.directory.path() / "results.jsonl");
  TrialResults results = scene.open();
  CHECK_THROWS_AS(results.read(), Error);
}

TEST_CASE("reported results are preferred to printed ones, and printed ones to events") {
  ResultScene scene;
  TrialResults results = scene.open();
  scene.log(1);
  CHECK(scene.read(results) == "");
  scene.now += milliseconds(500);
  scene.print(2);
  CHECK(scene.read(results) == "");
  SUBCASE("a report is chosen at once") {
    scene.report(3);
    CHECK(scene.read(results) == "3");
    CHECK(scene.source() == "report");
  }
  SUBCASE("one second after the first result, the preferred source is chosen") {
    scene.now += milliseconds(499);
    CHECK(scene.read(results) == "");
    scene.now += milliseconds(1);
    CHECK(scene.read(results) == "2");
    CHECK(scene.source() == "output");
  }
  SUBCASE("at the end of the run, the preferred source is chosen at once") {
    CHECK(scene.finish(results) == "2");
    CHECK(scene.source() == "output");
  }
}

TEST_CASE("a report file without the metric does not hide other sources") {
  ResultScene scene;
  TrialResults results = scene.open();
  scene.append("results.jsonl", "{\"accuracy\": 1}\n");
  scene.log(1);
  CHECK(scene.finish(results) == "1");
  CHECK(scene.source() == "events");
}

TEST_CASE("the chosen source is kept, even when the results are reopened") {
  ResultScene scene;
  scene.print(1);
  TrialResults first = scene.open();
  CHECK(scene.finish(first) == "1");
  scene.report(2);
  scene.log(3);
  scene.print(4);
  scene.now += milliseconds(5000);
  CHECK(scene.read(first) == "4");
  TrialResults second = scene.open();
  CHECK(scene.read(second) == "1 4");
  CHECK(scene.source() == "output");
}

TEST_CASE("an unknown source is rejected") {
  const ResultScene scene;
  scene.append("source", "logs\n");
  CHECK(::testing::error_of([&] { scene.open(); }) ==
        fmt::format("invalid source 'logs' in file '{}': expected report, output or events",
                    (scene.directory.path() / "source").string()));
}

TEST_CASE("event results are replayed in the order in which they were first delivered") {
  ResultScene scene;
  scene.log(1, "a.tfevents");
  TrialResults first = scene.open();
  CHECK(scene.finish(first) == "1");
  scene.log(4, "b.tfevents");
  CHECK(scene.finish(first) == "4");
  // This result is written late.
  scene.log(2, "a.tfevents");
  scene.log(3, "c.tfevents");
  CHECK(scene.finish(first) == "2 3");
  TrialResults second = scene.open();
  CHECK(scene.finish(second) == "1 4 2 3");
  scene.log(5, "b.tfevents");
  CHECK(scene.finish(second) == "5");
  // Results that an interrupted write lost are read from the event files again.
  const fs::path delivered = scene.directory.path() / "events.jsonl";
  fs::resize_file(delivered, fs::file_size(delivered) - 3);
  scene.log(6, "d.tfevents");
  TrialResults third = scene.open();
  CHECK(scene.finish(third) == "1 4 2 3 5 6");
  TrialResults fourth = scene.open();
  CHECK(scene.finish(fourth) == "1 4 2 3 5 6");
}

TEST_CASE("event results keep NaN values and steps when they are reopened") {
  ResultScene scene;
  scene.append("tensorboard/a.tfevents", scalar_record(1, 7, "loss", std::numeric_limits<float>::quiet_NaN()) +
                                             scalar_record(2, 8, "loss", 0.1f));
  for (int i = 0; i < 2; ++i) {
    TrialResults results = scene.open();
    const auto all = results.finish(scene.now);
    REQUIRE(all.size() == 2);
    CHECK(std::isnan(all[0].value));
    CHECK(all[0].step == 7);
    CHECK(all[1].value == static_cast<double>(0.1f));
    CHECK(all[1].step == 8);
  }
}

TEST_CASE("event files are polled at most four times per second, and at the end of the run") {
  ResultScene scene;
  scene.log(1);
  TrialResults results = scene.open();
  CHECK(scene.finish(results) == "1");
  scene.log(2);
  CHECK(scene.read(results) == "");
  scene.now += milliseconds(250);
  CHECK(scene.read(results) == "2");
  scene.log(3);
  CHECK(scene.finish(results) == "3");
}

TEST_CASE("the end of a trial waits for descriptors to read its events") {
  ResultScene scene;
  scene.log(1);
  TrialResults results = scene.open();
  CHECK(scene.finish(results) == "1");
  scene.log(2);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const std::string blocked = scene.finish(results);
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(blocked == "");
  CHECK(results.is_blocked());
  CHECK(scene.finish(results) == "2");
  CHECK_FALSE(results.is_blocked());
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_results_test
