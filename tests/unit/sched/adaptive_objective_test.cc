// Tests the preferences of the adaptive policy.
#include "policy/search/adaptive_objective.h"

#include <doctest/doctest.h>

#include "allocation_validator.h"
#include "policy/policies.h"
#include "policy/pollux/pollux.h"

namespace adaptive_objective_test {

using namespace adaptdl;
using namespace adaptdl::sched;

namespace {

constexpr const char* kGpu = "nvidia.com/gpu";

// A sample takes 10 ms. In each step, replicas wait for each other for `sync` seconds.
std::shared_ptr<const SpeedupFunction> speedup(double sync) {
  const goodput::PerfParams perf{0.01, 0.01, sync, 0, sync, 0, 1};
  return std::make_shared<const SpeedupFunction>(goodput::GoodputFunction(perf, {1e-3, 1}, 32),
                                                 goodput::Limits{4096, 1, 64, true});
}

// Returns an old job that was never restarted. It is half done, with `hours` left on one GPU.
JobInfo job(const std::string& name, double hours, double sync = 0.001) {
  JobInfo info;
  info.name = name;
  info.resources = {{kGpu, 1}};
  info.max_replicas = info.profiled_replicas = 64;
  info.speedup = speedup(sync);
  const double left = hours * 3600 * info.speedup->goodput(1, 1) / 32;
  info.progress = left;
  info.target_progress = 2 * left;
  return info;
}

Problem cluster(int nodes, const std::vector<JobInfo>& jobs) {
  Problem problem;
  problem.now = 3600;
  for (int node = 0; node < nodes; ++node)
    problem.nodes.push_back({"node-" + std::to_string(node), {{kGpu, 4}}, false, ""});
  problem.jobs = jobs;
  return problem;
}

Decision decide(const Problem& problem, double restart_cost = 30) {
  const Decision decision = make_policy("adaptive", {.restart_cost = restart_cost})->optimize(problem, nullptr);
  CHECK(violations(problem, decision, Promises{false, true}).empty());
  return decision;
}

std::size_t replicas(const Decision& decision, const std::string& name) { return decision.allocations.at(name).size(); }

JobInfo unmeasured(const std::string& name) {
  JobInfo fresh = job(name, 1);
  fresh.profiled_replicas = 0;
  fresh.speedup = nullptr;
  fresh.progress.reset();
  fresh.target_progress.reset();
  return fresh;
}

}  // namespace

TEST_CASE("of two jobs that scale alike, the one with less work left gets more replicas") {
  const Decision decision = decide(cluster(4, {job("long", 100, 0.1), job("short", 1, 0.1)}));
  CHECK(replicas(decision, "short") > replicas(decision, "long"));
}

TEST_CASE("of two jobs with equal work left, the older one is preferred") {
  JobInfo late = job("late", 1, 0.1);
  late.creation_time = -100'000;
  const Decision decision = decide(cluster(2, {job("new", 1, 0.1), late}));
  CHECK(replicas(decision, "late") >= replicas(decision, "new"));
  Problem crowded = cluster(1, {job("new", 1), late});
  crowded.nodes.front().resources[kGpu] = 1;
  CHECK(replicas(decide(crowded), "late") == 1);
}

TEST_CASE("a job gets up to four replicas until it is measured, then up to four times the most it was measured with") {
  CHECK(replicas(decide(cluster(16, {unmeasured("fresh")})), "fresh") == 4);
  JobInfo young = job("young", 100);
  young.profiled_replicas = 4;
  CHECK(replicas(decide(cluster(16, {young})), "young") == 16);
}

TEST_CASE("an unmeasured job gets some of the GPUs of a job that scales well, but not all of them") {
  for (const double hours : {0.5, 1.0, 10.0, 100.0}) {
    CAPTURE(hours);
    JobInfo fresh = unmeasured("fresh");
    fresh.creation_time = 3600;
    Problem problem = cluster(1, {job("running", hours), fresh});
    problem.previous["running"] = Allocation(4, "node-0");
    const Decision decision = decide(problem, 1);
    CHECK(replicas(decision, "fresh") >= 1);
    CHECK(replicas(decision, "running") >= 1);
  }
}

TEST_CASE("a job that has just started shares its GPUs with a new job instead of losing all of them") {
  for (const double hours : {1.0, 10.0, 100.0, 1000.0}) {
    for (const double age : {30.0, 60.0, 100.0}) {
      CAPTURE(hours);
      CAPTURE(age);
      JobInfo running = job("running", hours), fresh = unmeasured("fresh");
      running.creation_time = 3600 - age;
      fresh.creation_time = 3600;
      Problem problem = cluster(1, {running, fresh});
      problem.previous["running"] = Allocation(4, "node-0");
      CHECK(replicas(decide(problem), "running") >= 1);
    }
  }
}

TEST_CASE("the longer an unmeasured job waits, the more it is preferred") {
  for (const double age : {0.0, 1e6}) {
    JobInfo fresh = unmeasured("fresh");
    fresh.creation_time = 3600 - age;
    JobInfo running = job("running", 0.2);
    Problem crowded = cluster(1, {running, fresh});
    crowded.nodes.front().resources[kGpu] = 1;
    crowded.previous["running"] = {"node-0"};
    CHECK(replicas(decide(crowded), age > 0 ? "fresh" : "running") == 1);
  }
}

TEST_CASE("a job that is about to end does not take free GPUs, and one with more work left does") {
  for (const bool ends : {true, false}) {
    Problem problem = cluster(2, {job("job", ends ? 0.03 : 30)});
    problem.previous["job"] = Allocation(4, "node-0");
    CHECK(replicas(decide(problem), "job") == (ends ? 4 : 8));
  }
}

TEST_CASE("a job that has restarted often is not moved for a small gain") {
  for (const int restarts : {0, 60}) {
    JobInfo moved = job("job", 30, 0.5);
    moved.num_restarts = restarts;
    Problem problem = cluster(2, {moved});
    problem.previous["job"] = Allocation(4, "node-0");
    CHECK(replicas(decide(problem, 45), "job") == (restarts > 0 ? 4 : 8));
  }
}

TEST_CASE("the job with the higher weight gets more replicas, and equal weights change nothing") {
  std::vector<JobInfo> jobs{job("one", 10, 0.1), job("two", 10, 0.1)};
  const Decision plain = decide(cluster(4, jobs));
  for (JobInfo& each : jobs) each.weight = 4;
  CHECK(decide(cluster(4, jobs)).allocations == plain.allocations);
  jobs[0].weight = 1;
  CHECK(replicas(decide(cluster(4, jobs)), "two") > replicas(decide(cluster(4, jobs)), "one"));
  jobs[0].weight = 16;
  CHECK(replicas(decide(cluster(4, jobs)), "one") > replicas(decide(cluster(4, jobs)), "two"));
}

TEST_CASE("a job with a low restart cost is moved despite many restarts") {
  for (const auto& cost : {std::optional<double>(), std::optional<double>(1)}) {
    JobInfo moved = job("job", 30, 0.5);
    moved.num_restarts = 60;
    moved.restart_cost = cost;
    Problem problem = cluster(2, {moved});
    problem.previous["job"] = Allocation(4, "node-0");
    CHECK(replicas(decide(problem, 45), "job") == (cost ? 8 : 4));
  }
}

TEST_CASE("a job on several nodes uses whole nodes") {
  JobInfo wide = job("wide", 10);
  wide.max_replicas = 11;
  CHECK(replicas(decide(cluster(3, {wide})), "wide") == 8);
}

TEST_CASE("of two jobs without reported progress, the one with less attained service goes first") {
  JobInfo begun = job("begun", 1), advanced = job("advanced", 1);
  for (JobInfo* silent : {&begun, &advanced}) {
    silent->progress.reset();
    silent->target_progress.reset();
  }
  begun.attained_service = 1'000;
  advanced.attained_service = 50'000;
  Problem crowded = cluster(1, {advanced, begun});
  crowded.nodes.front().resources[kGpu] = 1;
  CHECK(replicas(decide(crowded), "begun") == 1);
}

}  // namespace adaptive_objective_test
