#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "adaptdl/error.h"
#include "temporary_directory.h"
#include "tuner/trial_results.h"

namespace adaptdl::sched::tune::tuner_results_test {
namespace {

namespace fs = std::filesystem;

void append(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }

std::ptrdiff_t open_descriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

TEST_CASE("closed results hold no descriptor and continue where they were") {
  const ::testing::TemporaryDirectory directory;
  const fs::path file = directory.path() / "results.jsonl", log = directory.path() / "rank-0.log";
  append(file, "{\"loss\": 1}\n{\"loss\": 2}\n{\"lo");
  append(log, "some text\n");
  const auto before = open_descriptors();
  TrialResults results(file, directory.path(), "loss");
  CHECK(results.read().size() == 2);
  CHECK(open_descriptors() > before);
  results.close();
  CHECK(open_descriptors() == before);
  append(file, "ss\": 3}\n");
  const auto more = results.finish();
  REQUIRE(more.size() == 1);
  CHECK(more[0].value == 3);
}

TEST_CASE("a backlog is read in parts") {
  const ::testing::TemporaryDirectory directory;
  const fs::path file = directory.path() / "results.jsonl";
  constexpr int kLines = 100'000;
  std::string text;
  for (int i = 0; i < kLines; ++i) text += fmt::format("{{\"loss\": {}, \"step\": {}}}\n", i, i);
  append(file, text);
  TrialResults results(file, directory.path(), "loss");
  std::size_t count = results.read().size();
  CHECK(count < kLines);
  while (results.has_more()) count += results.read().size();
  CHECK(count == kLines);
}

TEST_CASE("results that cannot be read are an error, unless there are none") {
  const ::testing::TemporaryDirectory directory;
  CHECK(TrialResults(directory.path() / "none", directory.path(), "loss").read().empty());
  fs::create_directory(directory.path() / "results.jsonl");
  TrialResults results(directory.path() / "results.jsonl", directory.path(), "loss");
  CHECK_THROWS_AS(results.read(), Error);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_results_test
