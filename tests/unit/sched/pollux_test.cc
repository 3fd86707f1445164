// Tests the decisions of Pollux and their reasons.
#include "policy/pollux/pollux.h"

#include <doctest/doctest.h>

#include <limits>
#include <set>

#include "allocation_validator.h"
#include "golden.h"

namespace pollux_test {

using namespace adaptdl;
using namespace adaptdl::sched;

namespace {

constexpr const char* kGpu = "nvidia.com/gpu";

// Returns the speedup of a job that scales nearly ideally, or of one that waits for its network most of the time.
std::shared_ptr<const SpeedupFunction> speedup(bool scales, double slower_between_nodes = 1) {
  const double sync = scales ? 0.001 : 0.3;
  const goodput::PerfParams perf{0.01, 0.01, sync * slower_between_nodes, 0, sync, 0, 1};
  return std::make_shared<const SpeedupFunction>(goodput::GoodputFunction(perf, {1e-3, 1}, 32),
                                                 goodput::Limits{4096, 1, 64, true});
}

JobInfo job(const std::string& name, bool scales = true, int max_replicas = 64) {
  JobInfo info;
  info.name = name;
  info.resources = {{kGpu, 1}};
  info.max_replicas = info.profiled_replicas = max_replicas;
  info.speedup = speedup(scales);
  return info;
}

Problem cluster(int nodes, int gpus) {
  Problem problem;
  problem.now = 100'000;
  for (int node = 0; node < nodes; ++node)
    problem.nodes.push_back({"node-" + std::to_string(node), {{kGpu, gpus}}, false, ""});
  return problem;
}

Decision decide(const Problem& problem, const PolluxOptions& options) {
  const Decision decision = make_pollux(options)->optimize(problem, nullptr);
  CHECK(violations(problem, decision).empty());
  return decision;
}

Decision released(const Problem& problem) { return decide(problem, released_options({})); }

PolluxOptions fair(double exponent) {
  PolluxOptions options = paper_options({.fairness = exponent});
  options.search = PolluxSearch::kAdditive;
  return options;
}

std::set<std::string> nodes_of(const Allocation& allocation) { return {allocation.begin(), allocation.end()}; }

}  // namespace

TEST_CASE("a job that scales better gets more replicas, and no useful GPU stays idle") {
  Problem problem = cluster(2, 4);
  problem.jobs = {job("good"), job("poor", false)};
  const Decision decision = released(problem);
  CHECK(decision.allocations.at("good").size() > decision.allocations.at("poor").size());
  CHECK(decision.allocations.at("good").size() + decision.allocations.at("poor").size() == 8);
  CHECK(decision.desired_nodes == 2);
}

TEST_CASE("a job gets one replica until it is measured, then up to twice the largest number it was measured with") {
  Problem problem = cluster(4, 4);
  problem.jobs = {job("new"), job("known")};
  problem.jobs[0].profiled_replicas = 0;
  problem.jobs[0].speedup = nullptr;
  problem.jobs[1].profiled_replicas = 3;
  for (const PolluxOptions& options : {released_options({}), paper_options({}), fair(-1)}) {
    const Decision decision = decide(problem, options);
    CHECK(decision.allocations.at("new").size() == 1);
    CHECK(decision.allocations.at("known").size() == 6);
    CHECK_GOLDEN(decision.reasons.at("new"));
  }
}

TEST_CASE("a job stays on one node if the network between nodes is slow") {
  Problem problem = cluster(4, 4);
  problem.jobs = {job("local")};
  problem.jobs[0].speedup = speedup(true, 1e6);
  const Decision decision = released(problem);
  CHECK(decision.allocations.at("local").size() == 4);
  CHECK(nodes_of(decision.allocations.at("local")).size() == 1);
}

TEST_CASE("a job is not restarted for a gain smaller than the cost of a restart") {
  Problem problem = cluster(1, 4);
  problem.nodes[0].resources[kGpu] = 11;
  problem.jobs = {job("running")};
  problem.previous["running"] = Allocation(10, "node-0");  // 11 replicas are 10% faster, minus 10% for the restart
  const Decision decision = released(problem);
  CHECK(decision.allocations.at("running").size() == 10);
  CHECK(decision.reasons.at("running").starts_with("keeps 10 replicas on 1 node: "));
}

TEST_CASE("in the paper's model, restarts cost young jobs and frequently restarted jobs more") {
  Problem problem = cluster(1, 4);
  problem.jobs = {job("running")};
  problem.previous["running"] = {"node-0", "node-0"};
  problem.jobs[0].creation_time = problem.now - 10'000;
  CHECK(decide(problem, fair(-1)).allocations.at("running").size() == 4);
  problem.jobs[0].num_restarts = 300;
  CHECK(decide(problem, fair(-1)).allocations.at("running").size() == 2);
  problem.jobs[0].num_restarts = 0;
  problem.jobs[0].creation_time = problem.now - 10;
  CHECK(decide(problem, fair(-1)).allocations.at("running").size() == 2);
}

TEST_CASE("a more negative fairness exponent favors jobs that scale poorly") {
  Problem problem = cluster(4, 4);
  problem.jobs = {job("good"), job("poor", false)};
  const auto of_poor = [&](double exponent) { return decide(problem, fair(exponent)).allocations.at("poor").size(); };
  CHECK(of_poor(1) <= of_poor(0));
  CHECK(of_poor(0) <= of_poor(-1));
  CHECK(of_poor(-1) <= of_poor(-10));
  CHECK(of_poor(1) < of_poor(-10));
}

TEST_CASE("a pinned job keeps its allocation in the same order") {
  Problem problem = cluster(3, 4);
  problem.jobs = {job("pinned"), job("other")};
  problem.jobs[0].preemptible = false;
  problem.previous["pinned"] = {"node-2", "node-0", "node-0"};
  for (const PolluxOptions& options : {released_options({}), paper_options({})}) {
    const Decision decision = decide(problem, options);
    CHECK(decision.allocations.at("pinned") == problem.previous["pinned"]);
    CHECK_GOLDEN(decision.reasons.at("pinned"));
    CHECK(decision.allocations.at("other").size() == 9);
  }
}

TEST_CASE("on a node that has shrunk, the oldest pinned job keeps its replicas") {
  Problem problem = cluster(1, 4);
  problem.jobs = {job("late"), job("early")};
  for (JobInfo& each : problem.jobs) each.preemptible = false;
  problem.jobs[0].creation_time = 2;
  problem.jobs[1].creation_time = 1;
  problem.previous = {{"late", Allocation(3, "node-0")}, {"early", Allocation(3, "node-0")}};
  const Decision decision = released(problem);
  CHECK(decision.allocations.at("early").size() == 3);
  CHECK(decision.allocations.at("late").size() <= 1);
}

TEST_CASE("preemptible nodes are used last") {
  Problem problem = cluster(3, 4);
  problem.nodes[0].preemptible = true;
  problem.jobs = {job("one", true, 4), job("two", true, 4)};
  const Decision decision = released(problem);
  for (const auto& [name, allocation] : decision.allocations) CHECK_FALSE(nodes_of(allocation).contains("node-0"));
}

TEST_CASE("a job gets at least its minimum number of replicas or none") {
  Problem problem = cluster(1, 4);
  problem.jobs = {job("large"), job("small", true, 1)};
  problem.jobs[0].min_replicas = 5;
  const Decision decision = released(problem);
  CHECK(decision.allocations.at("large").empty());
  CHECK(decision.allocations.at("small").size() == 1);
  CHECK_GOLDEN(decision.reasons.at("large"));
}

TEST_CASE("a job that cannot run waits, and the reason says why") {
  Problem problem = cluster(1, 1);
  problem.jobs = {job("wide"), job("nothing"), job("contradiction"), job("absurd")};
  problem.jobs[0].resources[kGpu] = 2;
  problem.jobs[1].resources = {{kGpu, 0}};
  problem.jobs[2].min_replicas = 65;
  const goodput::PerfParams perf{std::numeric_limits<double>::quiet_NaN(), 1, 1, 1, 1, 1, 1};
  problem.jobs[3].speedup =
      std::make_shared<const SpeedupFunction>(goodput::GoodputFunction(perf, {1, 1}, 32), goodput::Limits{});
  for (const PolluxOptions& options : {released_options({}), paper_options({})}) {
    const Decision decision = decide(problem, options);
    for (const auto& [name, allocation] : decision.allocations) CHECK(allocation.empty());
    CHECK_GOLDEN(decision.reasons.at("wide"));
    CHECK_GOLDEN(decision.reasons.at("nothing"));
    CHECK_GOLDEN(decision.reasons.at("contradiction"));
    CHECK_GOLDEN(decision.reasons.at("absurd"));
  }
}

TEST_CASE("the reason states a job's speedup") {
  Problem problem = cluster(1, 4);
  problem.jobs = {job("one")};
  CHECK_GOLDEN(released(problem).reasons.at("one"));
  problem.nodes[0].resources[kGpu] = 512;
  problem.jobs[0].max_replicas = problem.jobs[0].profiled_replicas = 512;
  const std::string reason = released(problem).reasons.at("one");
  CHECK_MESSAGE(reason.find("e+") == std::string::npos, reason);
  problem = cluster(1, 4);
  problem.jobs = {job("one")};
  // The fair share of a single job is the whole cluster.
  CHECK_GOLDEN(decide(problem, paper_options({})).reasons.at("one"));
}

TEST_CASE("a cluster with a node template grows for scalable jobs and shrinks when nodes are idle") {
  Problem problem = cluster(4, 4);
  problem.node_template = NodeInfo{"template", {{kGpu, 4}}, true, ""};
  for (int i = 0; i < 16; ++i) problem.jobs.push_back(job("job-" + std::to_string(i)));
  CHECK(released(problem).desired_nodes == 8);
  problem.jobs = {job("job", true, 1)};
  const Decision decision = released(problem);
  CHECK(decision.desired_nodes == 1);
  CHECK(decision.allocations.at("job") == Allocation{"node-0"});
  problem.jobs[0].preemptible = false;
  problem.previous["job"] = {"node-2"};
  CHECK(released(problem).desired_nodes == 3);
}

TEST_CASE("an empty cluster with a node template gets a node for a job that fits") {
  Problem problem = cluster(0, 4);
  problem.node_template = NodeInfo{"template", {{kGpu, 4}}, true, ""};
  CHECK(released(problem).desired_nodes == 0);
  problem.jobs = {job("job")};
  CHECK(released(problem).desired_nodes == 1);
  problem.jobs[0].resources[kGpu] = 5;
  CHECK(released(problem).desired_nodes == 0);
}

TEST_CASE("the genetic search continues from its last states, even if jobs and nodes have changed") {
  Problem problem = cluster(4, 4);
  for (int i = 0; i < 8; ++i) problem.jobs.push_back(job("job-" + std::to_string(i)));
  PolluxOptions options = paper_options({});
  options.genetic.generations = 3;
  const auto policy = make_pollux(options);
  std::shared_ptr<const PolicyState> state;
  // A few generations do not find good allocations at once, but do so over several cycles that continue the search.
  std::size_t first = 0, last = 0;
  for (int cycle = 0; cycle < 30; ++cycle) {
    const Decision decision = policy->optimize(problem, state);
    CHECK(violations(problem, decision).empty());
    state = decision.state;
    last = 0;
    for (const auto& [name, allocation] : decision.allocations) last += allocation.size();
    if (cycle == 0) first = last;
  }
  CHECK(first < 14);
  CHECK(last >= 15);
  problem.jobs.erase(problem.jobs.begin());
  problem.jobs.push_back(job("new"));
  problem.nodes.erase(problem.nodes.begin());
  CHECK(violations(problem, policy->optimize(problem, state)).empty());
}

TEST_CASE("the genetic search respects the maximum number of nodes per job") {
  Problem problem = cluster(20, 1);
  problem.jobs = {job("wide")};
  PolluxOptions options = paper_options({});
  options.genetic.max_nodes = 3;
  CHECK(nodes_of(decide(problem, options).allocations.at("wide")).size() == 3);
}

}  // namespace pollux_test
