#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "error_of.h"
#include "golden.h"
#include "policy/policies.h"
#include "simulator/simulator.h"
#include "simulator/summary.h"
#include "simulator_files.h"

namespace adaptdl::sched::simulation_test {
namespace {

const Applications& applications() {
  static const Applications loaded = load_traces(osdi21() / "traces");
  return loaded;
}

Workload light() { return load_workload(osdi21() / "workloads/load-0.5/workload-3.csv", applications()); }

WorkloadJob job(const std::string& name, double time, const std::string& application, int replicas, std::size_t batch) {
  return {name, time, applications().at(application), replicas, batch};
}

SimulationResult run(const Workload& workload, const std::string& policy, const SimulationOptions& options = {},
                     SimulationObserver* observer = nullptr, const std::atomic<bool>* stop = nullptr) {
  const auto made = make_policy(policy, {});
  const SimulationTask task{&workload, made.get(), policy};
  return simulate(std::span(&task, 1), options, observer, stop).front();
}

struct Recorder final : SimulationObserver {
  void cycle(const CycleRecord& record) override {
    const std::lock_guard lock(mutex);
    records[record.task].push_back(record);
  }
  void finished(std::size_t task, const SimulationResult& result) override {
    const std::lock_guard lock(mutex);
    results[task] = result;
  }
  std::mutex mutex;
  std::map<std::size_t, std::vector<CycleRecord>> records;
  std::map<std::size_t, SimulationResult> results;
};

// Returns the message of the UsageError that a call throws; "" if it throws nothing.
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("the summary statistics match the jobs' results") {
  const Workload workload{"two", {job("a", 30, "ncf", 1, 32768), job("b", 100, "cifar10", 4, 512)}};
  const SimulationResult result = run(workload, "fifo");
  REQUIRE(result.jobs.size() == 2);
  REQUIRE(result.jobs[0].completion_time);
  const double a = *result.jobs[0].completion_time - 30, b = *result.jobs[1].completion_time - 100;
  CHECK(result.workload == "two");
  CHECK(result.policy == "fifo");
  CHECK_FALSE(result.stopped);
  CHECK(result.average_jct == doctest::Approx((a + b) / 2));
  CHECK(result.p50_jct == std::min(a, b));
  CHECK(result.p99_jct == std::max(a, b));
  CHECK(result.makespan == std::max(*result.jobs[0].completion_time, *result.jobs[1].completion_time) - 30);
  CHECK(result.restarts_per_job == 0);
  // Each job held its GPUs from the cycle after its submission until its end.
  CHECK(result.jobs[0].gpu_seconds == a - 30);
  CHECK(result.jobs[1].gpu_seconds == 4 * (b - 20));
  CHECK(result.gpu_hours == doctest::Approx((a - 30 + 4 * (b - 20)) / 3600));
  CHECK(result.node_hours == doctest::Approx(16 * result.makespan / 3600));
  CHECK(result.cost == 0);
}

TEST_CASE("jobs pay for their share of each node's GPUs, and the node cost covers all nodes") {
  const Workload workload{"two", {job("a", 0, "ncf", 1, 32768), job("b", 0, "cifar10", 4, 512)}};
  const SimulationResult result = run(workload, "fifo", {.groups = {{.nodes = 2, .gpus = 4, .price = 8}}});
  for (const JobOutcome& each : result.jobs) CHECK(each.cost == doctest::Approx(each.gpu_seconds / 3600 * 8 / 4));
  CHECK(result.cost == doctest::Approx(result.jobs[0].cost + result.jobs[1].cost));
  CHECK(result.node_cost == doctest::Approx(16 * result.makespan / 3600));
}

TEST_CASE("finish-time fairness compares a job's completion time with that of the job alone on its share of the GPUs") {
  const Workload workload{"one", {job("a", 0, "cifar10", 4, 512)}};
  const SimulationOptions options;
  const SimulationResult result = run(workload, "tiresias", options);
  // The only job is always active, so its share is all 64 GPUs, of which it uses as many as it can.
  const double alone = alone_time(workload.jobs[0], 64, options.groups.front(), options);
  CHECK(result.jobs[0].alone_time == alone);
  CHECK(result.worst_ftf == doctest::Approx(*result.jobs[0].completion_time / alone));
  CHECK(alone < alone_time(workload.jobs[0], 4, options.groups.front(), options));
  CHECK(alone_time(job("n", 0, "ncf", 1, 32768), 8, options.groups.front(), options) ==
        alone_time(job("n", 0, "ncf", 1, 32768), 1, options.groups.front(), options));
}

TEST_CASE("percentiles use the nearest rank") {
  CHECK(nearest_rank({}, 0.5) == 0);
  CHECK(nearest_rank({3}, 0.99) == 3);
  CHECK(nearest_rank({4, 1, 3, 2}, 0.5) == 2);
  CHECK(nearest_rank({4, 1, 3, 2}, 0.51) == 3);
  CHECK(nearest_rank({4, 1, 3, 2}, 1) == 4);
  std::vector<double> values;
  for (int i = 1; i <= 160; ++i) values.push_back(i);
  CHECK(nearest_rank(values, 0.99) == 159);
}

TEST_CASE("results are in task order and do not depend on the number of threads" * doctest::test_suite("slow")) {
  const std::vector<Workload> workloads = {light()};
  std::vector<std::unique_ptr<Policy>> policies;
  std::vector<SimulationTask> tasks;
  for (const char* name : {"tiresias", "optimus"}) {
    policies.push_back(make_policy(name, {}));
    for (const Workload& workload : workloads) tasks.push_back({&workload, policies.back().get(), name});
  }
  Recorder recorder;
  const auto one = simulate(tasks, {}, nullptr, nullptr, 1);
  const auto many = simulate(tasks, {}, &recorder, nullptr, 4);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    CHECK(many[i].workload == tasks[i].workload->name);
    CHECK(many[i].policy == tasks[i].policy_name);
    CHECK(recorder.results.at(i).average_jct == many[i].average_jct);
    for (std::size_t j = 0; j < one[i].jobs.size(); ++j) {
      REQUIRE(one[i].jobs[j].completion_time == many[i].jobs[j].completion_time);
      REQUIRE(one[i].jobs[j].gpu_seconds == many[i].jobs[j].gpu_seconds);
    }
  }
}

TEST_CASE("cycle records follow every job from submission to completion") {
  const Workload workload = light();
  Recorder recorder;
  const SimulationResult result = run(workload, "tiresias", {}, &recorder);
  const auto& records = recorder.records.at(0);
  std::map<std::string, int> completed;
  double before = 0;
  for (const CycleRecord& record : records) {
    REQUIRE(record.time > before);
    before = record.time;
    CHECK(record.nodes.size() == 16);
    CHECK(record.total == workload.jobs.size());
    std::map<std::string, int> used;
    for (const CycleJob& each : record.jobs) {
      REQUIRE(each.submission_time <= record.time);
      REQUIRE(completed[each.name] == 0);
      for (const std::string& node : each.allocation) ++used[node];
      if (each.state == JobState::kCompleted) {
        ++completed[each.name];
        CHECK(each.progress == 1);
        CHECK(each.completion_time.value() > record.time - 60);
        CHECK(each.completion_time.value() <= record.time);
        continue;
      }
      CHECK_FALSE(each.reason.empty());
      CHECK((each.state == JobState::kWaiting) == each.allocation.empty());
      CHECK((each.batch_size > 0) == !each.allocation.empty());
      CHECK(each.progress < 1);
    }
    for (const auto& [node, replicas] : used) CHECK(replicas <= 4);
  }
  CHECK(completed.size() >= workload.jobs.size());
  for (const JobOutcome& outcome : result.jobs) CHECK(completed[outcome.name] == 1);
  CHECK(records.back().completed == workload.jobs.size());
}

TEST_CASE("a job that starts pays the restart cost first") {
  const Workload workload{"one", {job("a", 0, "cifar10", 4, 512)}};
  SimulationOptions slow, quick;
  slow.restart_cost = 90;
  quick.restart_cost = 0;
  Recorder recorder;
  const double with = *run(workload, "fifo", slow, &recorder).jobs[0].completion_time;
  const double without = *run(workload, "fifo", quick).jobs[0].completion_time;
  CHECK(with - without == doctest::Approx(90).epsilon(0.1));
  CHECK(recorder.records.at(0)[0].jobs[0].state == JobState::kRestarting);
  CHECK(recorder.records.at(0)[1].jobs[0].state == JobState::kRestarting);
  CHECK(recorder.records.at(0)[2].jobs[0].state == JobState::kRunning);
}

TEST_CASE("long gaps between jobs are skipped without shifting the cycle times") {
  const Workload workload{"far", {job("a", 0, "ncf", 1, 32768), job("b", 1e9 + 30, "ncf", 1, 32768)}};
  Recorder recorder;
  const SimulationResult result = run(workload, "fifo", {}, &recorder);
  CHECK(result.makespan > 1e9);
  CHECK(recorder.records.at(0).size() < 100);
  for (const CycleRecord& record : recorder.records.at(0)) CHECK(std::fmod(record.time, 60) == 0);
  // Job a starts at 60 s, and b at the first full minute after its submission.
  CHECK(*result.jobs[0].completion_time - 60 ==
        doctest::Approx(*result.jobs[1].completion_time - 60 * std::ceil((1e9 + 30) / 60)));
}

TEST_CASE("interference slows only distributed jobs that share a node") {
  // Each job has six replicas on nodes of four GPUs, so the second starts on the node that the first does not fill.
  const Workload shared{"shared", {job("a", 0, "cifar10", 6, 2048), job("b", 0, "cifar10", 6, 2048)}};
  const Workload alone{"alone", {job("a", 0, "cifar10", 6, 2048), job("b", 0, "cifar10", 2, 2048)}};
  SimulationOptions options;
  options.groups = {{"", 3, 4, 1}};
  for (const auto& [workload, slower] : {std::pair(&shared, true), std::pair(&alone, false)}) {
    options.interference = 0;
    const SimulationResult without = run(*workload, "tiresias", options);
    options.interference = 0.5;
    const SimulationResult with = run(*workload, "tiresias", options);
    CHECK((with.average_jct > 1.3 * without.average_jct) == slower);
    if (!slower) CHECK(with.average_jct == without.average_jct);
  }
}

TEST_CASE("faster GPUs make a job faster, but by less than their speed factor") {
  const Workload workload{"one", {job("a", 0, "cifar10", 8, 2048)}};
  SimulationOptions slow, fast;
  slow.restart_cost = fast.restart_cost = 0;
  slow.groups = {{"t4", 2, 4, 1}};
  fast.groups = {{"a100", 2, 4, 4}};
  const double one = run(workload, "fifo", slow).jobs[0].gpu_seconds;
  const double four = run(workload, "fifo", fast).jobs[0].gpu_seconds;
  CHECK(four < one);
  CHECK(four > one / 4);
}

TEST_CASE("an autoscaled cluster follows the policy within its size limits" * doctest::test_suite("slow")) {
  SimulationOptions options;
  options.autoscale = Autoscale{2, 20};
  Recorder recorder;
  const Workload workload = load_workload(osdi21() / "workloads/load-1.0/workload-3.csv", applications());
  const SimulationResult scaled = run(workload, "pollux-released", options, &recorder);
  std::set<std::size_t> sizes;
  for (const CycleRecord& record : recorder.records.at(0)) {
    sizes.insert(record.nodes.size());
    std::set<std::string> names;
    for (const NodeInfo& node : record.nodes) names.insert(node.name);
    for (const CycleJob& each : record.jobs) {
      for (const std::string& node : each.allocation) REQUIRE(names.contains(node));
    }
  }
  CHECK(*sizes.begin() == 2);
  CHECK(*sizes.rbegin() > 8);
  CHECK(*sizes.rbegin() <= 20);
  CHECK(scaled.node_hours < 20 * scaled.makespan / 3600 * 0.9);
  // If the policy does not choose a size, the cluster keeps its initial size, the minimum.
  Recorder fixed;
  run(Workload{"one", {job("a", 0, "ncf", 1, 32768)}}, "fifo", options, &fixed);
  for (const CycleRecord& record : fixed.records.at(0)) CHECK(record.nodes.size() == 2);
}

TEST_CASE("a stopped simulation is marked as stopped and returns partial results") {
  std::atomic<bool> stop = false;
  struct Stopper final : SimulationObserver {
    explicit Stopper(std::atomic<bool>& shared) : flag(shared) {}
    void cycle(const CycleRecord& record) override {
      last = record.time;
      if (record.completed >= 10) flag = true;
    }
    void finished(std::size_t /*task*/, const SimulationResult& result) override { stopped = result.stopped; }
    std::atomic<bool>& flag;
    double last = 0;
    bool stopped = false;
  } stopper(stop);
  const SimulationResult result = run(light(), "tiresias", {}, &stopper, &stop);
  CHECK(result.stopped);
  CHECK(stopper.stopped);
  CHECK(stopper.last < 28800);
  CHECK(std::ranges::count_if(result.jobs, [](const auto& each) { return each.completion_time.has_value(); }) >= 10);
  CHECK(result.average_jct > 0);
}

TEST_CASE("a simulation without progress fails with the policy's reason") {
  const Workload workload{"big", {job("whale", 0, "cifar10", 32, 4096), job("a", 0, "ncf", 1, 32768)}};
  SimulationOptions options;
  options.groups = {{"", 2, 4, 1}};
  try {
    run(workload, "tiresias", options);
    FAIL("it ended");
  } catch (const Error& error) {
    const std::string message = error.what();
    CAPTURE(message);
    CHECK(message.starts_with("workload 'big' under policy 'tiresias': no job has made progress for 1000 cycles"));
    CHECK(message.find(
              "the policy's reason for job 'whale': waits: needs 32 replicas, but the nodes can hold only 8 in total") !=
          std::string::npos);
  }
  options.groups = {{"", 0, 4, 1}};
  CHECK_THROWS_AS(run(light(), "fifo", options), Error);
}

TEST_CASE("a restart cost that spans thousands of cycles is not mistaken for a lack of progress") {
  const Workload workload{"one", {job("a", 0, "ncf", 1, 32768)}};
  SimulationOptions options;
  options.interval = 0.01;
  CHECK_FALSE(run(workload, "fifo", options).stopped);
}

TEST_CASE("an exception thrown by an observer ends the simulations and is rethrown") {
  struct Thrower final : SimulationObserver {
    void cycle(const CycleRecord&) override { throw Error("the disk is full"); }
    void finished(std::size_t, const SimulationResult&) override {}
  } thrower;
  CHECK_GOLDEN(::testing::error_of([&] { run(light(), "tiresias", {}, &thrower); }));
}

TEST_CASE("a policy that allocates more GPUs than a node has is reported as a bug") {
  struct Greedy final : Policy {
    Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>&) const override {
      Decision decision;
      for (const JobInfo& each : problem.jobs) decision.allocations[each.name] = Allocation(9, problem.nodes[0].name);
      return decision;
    }
  } greedy;
  const Workload workload = light();
  const SimulationTask task{&workload, &greedy, "greedy"};
  CHECK_GOLDEN(::testing::error_of([&] { simulate(std::span(&task, 1), {}); }));
}

TEST_CASE("out-of-range options are rejected by name") {
  const auto with = [](auto change) {
    SimulationOptions options;
    change(options);
    return refusal([&] { check(options); });
  };
  CHECK(with([](auto&) {}) == "");
  CHECK(with([](auto& o) { o.interval = 0; }) == "the interval must be from 0.001 to 1000000 seconds, not 0");
  CHECK(with([](auto& o) { o.interval = std::nan(""); }).ends_with("seconds, not nan"));
  CHECK(with([](auto& o) { o.restart_cost = -1; }) == "the restart cost must be from 0 to 1000000 seconds, not -1");
  CHECK(with([](auto& o) { o.interference = 1; }) == "the interference must be at least 0 and below 1, not 1");
  CHECK(with([](auto& o) { o.groups.clear(); }).starts_with("the cluster has no node groups"));
  CHECK(with([](auto& o) { o.groups[0].nodes = -1; }) == "the number of nodes must be from 0 to 100000, not -1");
  CHECK(with([](auto& o) { o.groups[0].gpus = 0; }) == "the number of GPUs per node must be from 1 to 100000, not 0");
  CHECK(with([](auto& o) {
          o.groups[0].nodes = o.groups[0].gpus = 100'000;
        }).starts_with("the number of GPUs in the cluster must be at most 1000000000, not 1"));
  CHECK(with([](auto& o) { o.groups[0].speed = 0; }) == "the speed of a GPU must be a number above 0, not 0");
  CHECK(with([](auto& o) {
          o.groups.push_back({"", 1, 1, 2});
        }).starts_with("GPUs without a type have two speeds, 1 and 2"));
  CHECK(with([](auto& o) { o.autoscale = {4, 2}; }).starts_with("invalid range of node counts, 4 to 2: "));
  CHECK(with([](auto& o) { o.autoscale = {0, 2}; }).starts_with("invalid range of node counts, 0 to 2: "));
  CHECK(with([](auto& o) {
          o.autoscale = {1, 2};
          o.groups.push_back({"x", 1, 1, 2});
        }).starts_with("a cluster with several node groups"));
}

}  // namespace
}  // namespace adaptdl::sched::simulation_test
