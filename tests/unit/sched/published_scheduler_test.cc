// Reproduces the policy tests of the published Python scheduler (petuum/adaptdl, sched/adaptdl_sched/policy): the same
// jobs, nodes and requirements, under every policy that also adapts batch sizes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "allocation_validator.h"
#include "policy/policies.h"

namespace published_scheduler_test {

using namespace adaptdl;
using namespace adaptdl::sched;

namespace {

constexpr const char* kPolicies[] = {"pollux-released", "pollux", "adaptive"};
constexpr int kDevices = 16;  // of all nodes together

JobInfo job(const std::string& name, const Resources& resources, int min_replicas, int max_replicas) {
  const goodput::PerfParams perf{0.121, 0.00568, 0.0236, 0.00634, 0.0118, 0.00317, 1.14};
  JobInfo info;
  info.name = name;
  info.resources = resources;
  info.min_replicas = min_replicas;
  info.max_replicas = info.profiled_replicas = max_replicas;
  info.speedup = std::make_shared<const SpeedupFunction>(goodput::GoodputFunction(perf, {0.00136, 0.000502}, 128),
                                                         goodput::Limits{1280, 64, 256, false});
  return info;
}

Problem cluster_of(int nodes) {
  Problem problem;
  problem.now = 100'000;
  const Resources resources = {{"nvidia.com/gpu", kDevices / nodes}, {"pods", 32}};
  for (int node = 0; node < nodes; ++node) problem.nodes.push_back({std::to_string(node), resources, false, ""});
  problem.node_template = NodeInfo{"template", resources, true, ""};
  return problem;
}

}  // namespace

TEST_CASE("allocations respect the nodes' resources and the jobs' limits in every cycle" *
          doctest::test_suite("slow")) {
  for (const char* name : kPolicies) {
    for (const int nodes : {1, 2, 4, 8, 16}) {
      CAPTURE(name);
      CAPTURE(nodes);
      Problem problem = cluster_of(nodes);
      for (int i = 0; i < 16; ++i) {
        problem.jobs.push_back(job(std::to_string(i), {{"nvidia.com/gpu", 1}, {"pods", 1}}, 0, 8));
        problem.jobs.back().creation_time = 60. * i;
      }
      const auto policy = make_policy(name, {});
      std::shared_ptr<const PolicyState> state;
      for (int cycle = 0; cycle < 3; ++cycle) {
        const Decision decision = policy->optimize(problem, state);
        CHECK(violations(problem, decision).empty());
        state = decision.state;
      }
    }
  }
}

TEST_CASE("jobs that are not preemptible keep their allocations while others end") {
  for (const char* name : kPolicies) {
    for (const int nodes : {2, 8}) {
      CAPTURE(name);
      CAPTURE(nodes);
      std::mt19937 random(nodes);
      Problem problem = cluster_of(nodes);
      std::vector<int> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
      std::shuffle(numbers.begin(), numbers.end(), random);
      const Resources resources = {{"nvidia.com/gpu", 1}, {"pods", 1}};
      for (int i = 0; i < 10; ++i) {
        const bool preemptible = i < 5;
        problem.jobs.push_back(job(std::to_string(numbers[i]), resources, preemptible ? 0 : 2, preemptible ? 8 : 4));
        problem.jobs.back().preemptible = preemptible;
        problem.jobs.back().creation_time = 60. * numbers[i];
      }
      const auto policy = make_policy(name, {});
      std::shared_ptr<const PolicyState> state;
      for (int cycle = 0; cycle < 3; ++cycle) {
        const Decision decision = policy->optimize(problem, state);
        CHECK(violations(problem, decision).empty());
        for (const JobInfo& each : problem.jobs) {
          const auto before = problem.previous.find(each.name);
          if (!each.preemptible && before != problem.previous.end() && !before->second.empty())
            CHECK(decision.allocations.at(each.name) == before->second);
        }
        state = decision.state;
        problem.previous = decision.allocations;
        const auto gone = problem.jobs.begin() +
                          std::uniform_int_distribution<>(0, static_cast<int>(problem.jobs.size()) - 1)(random);
        problem.previous.erase(gone->name);
        problem.jobs.erase(gone);
      }
    }
  }
}

TEST_CASE("a new job starts on the first node with room for its minimum number of replicas") {
  const std::vector<NodeInfo> nodes = {{"0", {{"gpu", 1}, {"cpu", 500}, {"pods", 32}}, false, ""},
                                       {"1", {{"gpu", 2}, {"cpu", 2000}, {"pods", 32}}, false, ""},
                                       {"2", {{"gpu", 2}, {"cpu", 3000}, {"pods", 32}}, true, ""}};
  const auto allocated = [&](std::int64_t cpu, int min_replicas, int max_replicas) {
    return allocate_job(job("job", {{"gpu", 1}, {"cpu", cpu}, {"pods", 1}}, min_replicas, max_replicas), nodes);
  };
  CHECK(allocated(500, 0, 1) == Allocation{"0"});
  CHECK(allocated(1000, 0, 1) == Allocation{"1"});
  CHECK(allocated(1000, 2, 2) == Allocation{"1", "1"});
  CHECK(allocated(2000, 2, 2).empty());
}

TEST_CASE("a node that lacks one resource is not used, and more nodes are desired") {
  for (const char* name : {"pollux-released", "adaptive"}) {  // the policies that choose the size of the cluster
    CAPTURE(name);
    Problem problem;
    problem.now = 100'000;
    problem.nodes = {{"0", {{"gpu", 1}, {"cpu", 500}, {"pods", 32}}, false, ""},
                     {"1", {{"gpu", 1}, {"cpu", 8000}, {"pods", 32}}, false, ""},
                     {"2", {{"gpu", 1}, {"cpu", 8000}, {"pods", 32}}, false, ""}};
    problem.node_template = NodeInfo{"template", {{"gpu", 1}, {"cpu", 8000}, {"pods", 32}}, true, ""};
    for (int i = 0; i < 3; ++i) {
      problem.jobs.push_back(job(std::to_string(i), {{"gpu", 1}, {"cpu", 1000}, {"pods", 1}}, 0, 1));
      problem.jobs.back().creation_time = 60. * i;
    }
    const Decision decision = make_policy(name, {})->optimize(problem, nullptr);
    CHECK(violations(problem, decision).empty());
    std::size_t replicas = 0;
    for (const auto& [each, allocation] : decision.allocations) {
      CHECK(allocation.size() <= 1);
      replicas += allocation.size();
    }
    CHECK(replicas == 2);
    CHECK(decision.desired_nodes > 3);
  }
}

}  // namespace published_scheduler_test
