#include "simulation/timeline.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "simulation/cluster_plot.h"
#include "simulation/cycle_log.h"

namespace timeline_test {

using namespace adaptdl;
using namespace adaptdl::cli;

namespace {

sched::CycleRecord cycle(double time, std::vector<std::string> nodes,
                         const std::vector<std::pair<std::string, sched::Allocation>>& jobs) {
  sched::CycleRecord record{.workload = "w", .policy = "p", .time = time};
  for (std::string& name : nodes) record.nodes.push_back({.name = name, .resources = {{"nvidia.com/gpu", 4}}});
  for (const auto& [name, allocation] : jobs) {
    const auto state = allocation.empty() ? sched::JobState::kWaiting : sched::JobState::kRunning;
    record.jobs.push_back({.name = name, .application = "app", .state = state, .allocation = allocation});
  }
  return record;
}

// Formats each run of a slot as "job:from-to".
std::string runs(const Timeline& timeline, std::size_t slot) {
  std::string text;
  for (const Timeline::Run& run : timeline.slots[slot]) {
    const std::string job = run.job == Timeline::kFree ? "free" : timeline.jobs[run.job].name;
    text += fmt::format("{}:{:g}-{:g} ", job, run.from, run.to);
  }
  return text;
}

}  // namespace

TEST_CASE("a job keeps its slots, and consecutive equal cycles are merged") {
  TimelineBuilder builder;
  builder.add(cycle(60, {"n"}, {{"a", {"n"}}, {"b", {"n", "n"}}}));
  builder.add(cycle(120, {"n"}, {{"b", {"n", "n"}}, {"c", {}}}));
  builder.add(cycle(180, {"n"}, {{"b", {"n"}}, {"c", {"n", "n"}}}));
  const Timeline timeline = builder.finish();
  REQUIRE(timeline.slots.size() == 4);
  CHECK(runs(timeline, 0) == "a:60-120 free:120-180 c:180-240 ");
  CHECK(runs(timeline, 1) == "b:60-240 ");
  CHECK(runs(timeline, 2) == "b:60-180 c:180-240 ");
  CHECK(runs(timeline, 3) == "free:60-240 ");
  CHECK(timeline.counts[1].waiting == 1);
  CHECK(timeline.counts[1].running == 1);
}

TEST_CASE("nodes can join and leave between cycles") {
  TimelineBuilder builder;
  builder.add(cycle(0, {"n"}, {{"a", {"n"}}}));
  builder.add(cycle(60, {"n", "m"}, {{"a", {"n", "m"}}}));
  builder.add(cycle(120, {"n"}, {{"a", {"n"}}}));
  builder.add(cycle(180, {"n", "m"}, {{"a", {"n", "m"}}}));
  const Timeline timeline = builder.finish();
  CHECK(timeline.nodes[1].first_slot == 4);
  CHECK(runs(timeline, 0) == "a:0-240 ");
  CHECK(runs(timeline, 4) == "a:60-120 a:180-240 ");
  CHECK(runs(timeline, 7) == "free:60-120 free:180-240 ");
}

TEST_CASE("inconsistent cycles of a simulation are rejected") {
  TimelineBuilder builder;
  builder.add(cycle(60, {"n"}, {}));
  CHECK_GOLDEN(::testing::error_of([&] { builder.add(cycle(60, {"n"}, {})); }));
  CHECK_GOLDEN(::testing::error_of([&] { builder.add(cycle(120, {"n"}, {{"a", {"x"}}})); }));
  CHECK_GOLDEN(::testing::error_of([&] { builder.add(cycle(120, {"n"}, {{"a", sched::Allocation(5, "n")}})); }));
}

TEST_CASE("a cycle record that is written as JSON is read back unchanged") {
  sched::CycleRecord record = cycle(60.5, {"n \"1\""}, {{"a\n", {"n \"1\""}}, {"b", {}}});
  record.nodes[0].gpu_type = "t4";
  record.completed = 3;
  record.total = 9;
  sched::CycleJob& job = record.jobs[0];
  job.submission_time = 12.25;
  job.batch_size = 1024;
  job.accum_steps = 2;
  job.epoch = 7;
  job.progress = 0.125;
  job.restarts = 4;
  job.reason = "keeps 1 replica";
  job.completion_time = 99;
  const std::string line = cycle_line(record);
  CHECK(line.find('\n') == std::string::npos);
  const sched::CycleRecord read = parse_cycle(line);
  CHECK(cycle_line(read) == line);
  CHECK(read.jobs[0].allocation == record.jobs[0].allocation);
  CHECK(read.jobs[0].completion_time == 99);
  CHECK_FALSE(read.jobs[1].completion_time);
  CHECK(read.jobs[1].state == sched::JobState::kWaiting);
  CHECK(read.nodes[0].gpu_type == "t4");
  CHECK_THROWS_WITH_AS(parse_cycle("nothing"), "invalid JSON", Error);
}

TEST_CASE("a cluster without nodes is plotted without invalid numbers") {
  TimelineBuilder builder;
  builder.add(cycle(0, {}, {{"a", {}}}));
  const std::string svg = cluster_plot(builder.finish(), "");
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(svg.find("w under p") != std::string::npos);
}

}  // namespace timeline_test
