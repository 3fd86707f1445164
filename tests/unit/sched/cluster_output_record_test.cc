#include "cluster_tuner/output_record.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "temporary_directory.h"

namespace cluster_output_record_test {

using namespace adaptdl;
using namespace adaptdl::sched::tune;
using namespace std::chrono_literals;

namespace {

constexpr OutputRecord::Time kNoon{std::chrono::seconds(1'800'000'000)};

struct Scene {
  ::testing::TemporaryDirectory directory;
  std::filesystem::path file = directory.path() / "output.jsonl";

  OutputRecord open() const { return {file, "accuracy"}; }
  std::string text() const {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
};

std::string line(double value) { return "{\"accuracy\": " + std::to_string(value) + ", \"step\": 1}"; }

std::vector<double> values(const std::vector<Result>& results) {
  std::vector<double> found;
  for (const Result& result : results) found.push_back(result.value);
  return found;
}

}  // namespace

TEST_CASE("stored results are returned in order after a restart") {
  const Scene scene;
  {
    OutputRecord record = scene.open();
    CHECK(record.add("a", kNoon, line(0.5))->value == 0.5);
    CHECK_FALSE(record.add("a", kNoon, "epoch 1 of 10"));
    CHECK_FALSE(record.add("a", kNoon, "{\"loss\": 1}"));
    CHECK(record.add("b", kNoon - 1h, line(0.25))->step == 1);
    CHECK(std::isnan(record.add("b", kNoon, "{\"accuracy\": NaN}")->value));
  }
  OutputRecord record = scene.open();
  const std::vector<Result> results = record.take_stored();
  REQUIRE(results.size() == 3);
  CHECK(results[0].value == 0.5);
  CHECK(results[1].value == 0.25);
  CHECK(std::isnan(results[2].value));
  CHECK(record.take_stored().empty());
}

TEST_CASE("log lines that are read again are recognized, and only later ones are new") {
  const Scene scene;
  {
    OutputRecord record = scene.open();
    for (const double value : {0.1, 0.2, 0.2}) record.add("a", kNoon, line(value));
  }
  OutputRecord record = scene.open();
  for (int reads = 0; reads < 2; ++reads) {
    CHECK_FALSE(record.add("a", kNoon, line(0.1)));
    CHECK_FALSE(record.add("a", kNoon, line(0.2)));
    CHECK_FALSE(record.add("a", kNoon, line(0.2)));
    CHECK(record.add("a", kNoon, line(0.2)).has_value() == (reads == 0));
    record.restart();
  }
  // The same text with another timestamp, or from another pod, is a different line.
  CHECK(record.add("a", kNoon + 1ns, line(0.1)));
  CHECK(record.add("b", kNoon, line(0.1)));
  CHECK(values(scene.open().take_stored()) == std::vector<double>{0.1, 0.2, 0.2, 0.2, 0.1, 0.1});
}

TEST_CASE("a line truncated by a crash is removed, and is treated as new when it is read again") {
  const Scene scene;
  {
    OutputRecord record = scene.open();
    record.add("a", kNoon, line(0.1));
    record.add("a", kNoon + 1s, line(0.2));
  }
  const std::string whole = scene.text();
  const std::size_t first = whole.find('\n') + 1;
  for (std::size_t size = first; size < whole.size(); ++size) {
    std::ofstream(scene.file, std::ios::trunc) << whole.substr(0, size);
    OutputRecord record = scene.open();
    CHECK(values(record.take_stored()) == std::vector<double>{0.1});
    CHECK(scene.text().size() == first);
    CHECK_FALSE(record.add("a", kNoon, line(0.1)));
    CHECK(record.add("a", kNoon + 1s, line(0.2)));
    CHECK(scene.text() == whole);
  }
}

TEST_CASE("a file with an invalid line is rejected with the line number") {
  const Scene scene;
  for (const char* const wrong : {"{}", "x", "[]", R"({"pod": "a", "time": 1, "line": "{\"loss\": 1}"})"}) {
    std::ofstream(scene.file, std::ios::trunc) << R"({"pod": "a", "time": 1, "line": "{\"accuracy\": 1}"})" << '\n'
                                               << wrong << '\n';
    CHECK_GOLDEN(::testing::error_of([&] { scene.open(); }));
  }
}

TEST_CASE("failure to store a result is an error") {
  const Scene scene;
  OutputRecord record(scene.directory.path() / "none" / "output.jsonl", "accuracy");
  CHECK_THROWS_WITH_AS(record.add("a", kNoon, line(0.1)), doctest::Contains("cannot write "), Error);
}

}  // namespace cluster_output_record_test
