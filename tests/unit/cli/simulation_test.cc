#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "adaptdl/error.h"
#include "command/simulate/simulate_plan.h"
#include "simulation/cycle_log.h"
#include "simulation/result_table.h"
#include "simulation/simulation_screen.h"
#include "temporary_directory.h"

namespace simulation_test {

using namespace adaptdl;
using namespace adaptdl::cli;
using testing::TemporaryDirectory;

namespace {

sched::SimulationResult result(const char* workload, const char* policy, double average) {
  sched::SimulationResult one;
  one.workload = workload;
  one.policy = policy;
  one.average_jct = average;
  one.worst_ftf = 1.5;
  return one;
}

std::string content(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

sched::CycleRecord cycle(std::size_t task, double time) {
  return {.task = task, .workload = "w", .policy = "p", .time = time};
}

}  // namespace

TEST_CASE("the table of results has a mean per policy if there are several workloads") {
  const std::vector results = {result("one", "a", 1000), result("one", "b", 10), result("two", "a", 2000),
                               result("two", "b", 20)};
  const std::string table = result_table(results, {}).render();
  CHECK(table.find("\nmean      a           1,500 s") != std::string::npos);
  CHECK(table.find("\nmean      b              15 s") != std::string::npos);
  CHECK(table.find("NODE-HOURS") == std::string::npos);
  CHECK(result_table(std::span(results).first(2), {}).render().find("mean") == std::string::npos);
  CHECK(table.find("NODE") == std::string::npos);
  CHECK(result_table(results, {.node_hours = true, .costs = false}).render().find("NODE-HOURS") != std::string::npos);
  CHECK(result_table(results, {.node_hours = false, .costs = true}).render().find("NODE COST") != std::string::npos);
}

TEST_CASE("the JSON of results has one object per simulation, with fixed keys and no means") {
  const auto rows = result_json(std::vector{result("one", "a", 1000), result("two", "a", 2000)}, false);
  REQUIRE(rows.size() == 2);
  std::vector<std::string> keys;
  for (const auto& [key, value] : rows[1].items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"workload", "policy", "average_jct_s", "p50_jct_s", "p99_jct_s", "makespan_s",
                                         "restarts_per_job", "gpu_hours", "worst_ftf"});
  CHECK(rows[1]["average_jct_s"] == 2000);
  CHECK_FALSE(rows[1].contains("cost"));
  CHECK(result_json(std::vector{result("one", "a", 1)}, true)[0].contains("node_cost"));
}

TEST_CASE("a cycle log is ordered by task and appears only when it is closed") {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "log";
  {
    CycleLog log(file, 3);
    log.add(cycle(2, 1));
    log.add(cycle(0, 2));
    log.add(cycle(1, 3));
    log.finished(2);
    log.add(cycle(0, 4));
    log.finished(0);
    log.add(cycle(1, 5));
    log.finished(1);
    CHECK_FALSE(std::filesystem::exists(file));
    log.close();
  }
  std::istringstream lines(content(file));
  std::vector<double> times;
  for (std::string line; std::getline(lines, line);) times.push_back(parse_cycle(line).time);
  CHECK(times == std::vector<double>{2, 4, 3, 5, 1});
}

TEST_CASE("a cycle log that is not closed leaves the existing file unchanged") {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "log";
  std::ofstream(file) << "before";
  {
    CycleLog log(file, 2);
    log.add(cycle(1, 1));
  }
  CHECK(content(file) == "before");
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
  CHECK_THROWS_AS(CycleLog(directory.path(), 1), UsageError);
  CHECK_THROWS_AS(CycleLog(directory.path() / "no" / "log", 1), UsageError);
}

TEST_CASE("a cycle log written through a symbolic link replaces the link's target") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "real") << "before";
  std::filesystem::create_symlink("real", directory.path() / "link");
  CycleLog log(directory.path() / "link", 1);
  log.add(cycle(0, 1));
  log.finished(0);
  log.close();
  CHECK(std::filesystem::is_symlink(directory.path() / "link"));
  CHECK(content(directory.path() / "real") == cycle_line(cycle(0, 1)) + "\n");
}

TEST_CASE("the progress text of simulations is truncated to the given width") {
  const SimulationProgress progress{8, 3, 1280, 412, "workload-6 pollux at 2:03:00", std::chrono::seconds(7)};
  CHECK(progress_text(progress, 100) == "3/8 simulations  412/1,280 jobs  0:07  workload-6 pollux at 2:03:00");
  CHECK(progress_text(progress, 20) == "3/8 simulations  41…");
}

TEST_CASE("workload names contain as many path components as needed to be unique") {
  const auto names = [](const std::vector<std::filesystem::path>& files) { return workload_names(files); };
  CHECK(names({"/x/a.csv", "/x/b.csv"}) == std::vector<std::string>{"a", "b"});
  CHECK(names({"/x/1/a.csv", "/x/2/a.csv"}) == std::vector<std::string>{"1/a", "2/a"});
  CHECK(names({"/1/x/a.csv", "/2/x/a.csv"}) == std::vector<std::string>{"1/x/a", "2/x/a"});
  CHECK(names({"/a.csv", "/x/a.csv"}) == std::vector<std::string>{"a", "x/a"});
}

}  // namespace simulation_test
