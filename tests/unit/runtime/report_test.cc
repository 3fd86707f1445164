#include "adaptdl/report.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "adaptdl/metrics.h"
#include "adaptdl/progress.h"
#include "process_support.h"
#include "temporary_directory.h"

namespace report_test {

using namespace adaptdl;
using adaptdl::testing::Process;
using nlohmann::json;

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns what a replica of this rank writes to its results file.
std::string results(int rank, const std::function<void()>& replica) {
  const ::testing::TemporaryDirectory directory;
  const auto file = directory.path() / "results.jsonl";
  Process process(9, [&] {
    ::setenv("ADAPTDL_RESULTS_FILE", file.c_str(), 1);
    ::setenv("ADAPTDL_NUM_REPLICAS", "2", 1);
    ::setenv("ADAPTDL_REPLICA_RANK", std::to_string(rank).c_str(), 1);
    replica();
    return 0;
  });
  process.rest();
  return read(file);
}

}  // namespace

TEST_CASE("each result is appended as a line of JSON") {
  CHECK(results(0, [] {
          report("accuracy", 0.5);
          progress::set("epoch", 3);
          report("loss", std::nan(""));
        }) == "{\"accuracy\":0.5}\n{\"loss\":null,\"epoch\":3.0}\n");
}

TEST_CASE("a result written to a pipe starts a new line") {
  Process process(STDOUT_FILENO, [] {
    ::setenv("ADAPTDL_RESULTS_FILE", "/dev/stdout", 1);
    const bool written = ::write(STDOUT_FILENO, "50 %", 4) == 4;
    report("accuracy", 0.5);
    return written ? 0 : 1;
  });
  CHECK(process.rest() == "50 %\n{\"accuracy\":0.5}\n");
}

TEST_CASE("a result's step is the progress times the initial batch size") {
  CHECK(results(0, [] {
          metrics::set_batch_sizes({.init_batch_size = 32, .limits = {}});
          metrics::set_progress("model", 10.5);
          report("accuracy", 0.5);
        }) == "{\"accuracy\":0.5,\"step\":336}\n");
}

TEST_CASE("only rank 0 writes results") {
  CHECK(results(1, [] { report("accuracy", 0.5); }) == "");
}

TEST_CASE("an unwritable results file does not stop training") {
  Process process(9, [] {
    ::setenv("ADAPTDL_RESULTS_FILE", "/does/not/exist", 1);
    report("accuracy", 0.5);
    report("accuracy", 0.6);
    return progress::get("accuracy") == 0.6 ? 0 : 1;
  });
  process.rest();
  CHECK(process.join() == 0);
}

TEST_CASE("reserved and empty metric names are rejected") {
  for (const char* const name : {"", "step", "epoch"}) CHECK_THROWS_AS(report(name, 1), UsageError);
}

}  // namespace report_test
