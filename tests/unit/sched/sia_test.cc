#include "policy/sia/sia.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "golden.h"
#include "policy/sia/sia_problem.h"

namespace sia_test {

using namespace adaptdl;
using namespace adaptdl::sched;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::string kGpu = "nvidia.com/gpu";

NodeInfo node(const std::string& name, int gpus, const std::string& type = "") {
  return {.name = name, .resources = {{kGpu, gpus}}, .preemptible = false, .gpu_type = type};
}

std::vector<NodeInfo> nodes(int count, int gpus, const std::string& type = "") {
  std::vector<NodeInfo> all;
  for (int i = 0; i < count; ++i)
    all.push_back(node(fmt::format("{}-{}", type.empty() ? "node" : type, i), gpus, type));
  return all;
}

JobInfo job(const std::string& name, int max_replicas = 64) {
  return {.name = name, .resources = {{kGpu, 1}}, .max_replicas = max_replicas};
}

// Returns the speedup of a job that takes about `compute` seconds per sample and `sync` per step.
std::shared_ptr<SpeedupFunction> speedup(double compute, double sync) {
  const goodput::PerfParams perf{.alpha_c = compute,
                                 .beta_c = compute,
                                 .alpha_n = sync,
                                 .beta_n = sync / 50,
                                 .alpha_r = sync / 2,
                                 .beta_r = sync / 100,
                                 .gamma = 2};
  const goodput::GoodputFunction goodput(perf, {.sqr = 0.001, .var = 0.1}, 64);
  return std::make_shared<SpeedupFunction>(
      goodput,
      goodput::Limits{.max_batch_size = 4096, .min_local_bsz = 16, .max_local_bsz = 256, .accumulation = true});
}

Decision decide(const Problem& problem, const PolicyOptions& options = {}) {
  return make_sia(options)->optimize(problem, nullptr);
}

// Returns whether the job must keep its allocation: it is not preemptible, and all of its nodes still exist. (Nodes do
// not shrink in these tests.)
bool pinned(const Problem& problem, const JobInfo& one) {
  const auto previous = problem.previous.find(one.name);
  if (one.preemptible || previous == problem.previous.end() || previous->second.empty()) return false;
  return std::ranges::all_of(previous->second, [&](const std::string& name) {
    return std::ranges::find(problem.nodes, name, &NodeInfo::name) != problem.nodes.end();
  });
}

// Checks the constraints of every decision without the code of the policy.
void check_constraints(const Problem& problem, const Decision& decision) {
  REQUIRE(decision.allocations.size() == problem.jobs.size());
  std::map<std::string, Resources> used;
  std::map<std::string, int> distributed;
  for (const JobInfo& one : problem.jobs) {
    const Allocation& allocation = decision.allocations.at(one.name);
    CHECK_FALSE(decision.reasons.at(one.name).empty());
    const std::set<std::string> on(allocation.begin(), allocation.end());
    for (const std::string& name : allocation) {
      for (const auto& [resource, amount] : one.resources) used[name][resource] += std::max<std::int64_t>(amount, 0);
    }
    if (pinned(problem, one)) {
      CHECK(allocation == problem.previous.at(one.name));
      continue;
    }
    const int replicas = static_cast<int>(allocation.size());
    if (replicas > 0) CHECK(replicas >= one.min_replicas);
    CHECK(replicas <= std::max(one.max_replicas, 0));
    if (on.size() > 1) {
      for (const std::string& name : on) CHECK(++distributed[name] == 1);
    }
  }
  for (const auto& [name, resources] : used) {
    const auto there = std::ranges::find(problem.nodes, name, &NodeInfo::name);
    REQUIRE(there != problem.nodes.end());
    for (const auto& [resource, amount] : resources) {
      const auto capacity = there->resources.find(resource);
      CHECK(amount <= (capacity == there->resources.end() ? 0 : std::max<std::int64_t>(capacity->second, 0)));
    }
  }
}

std::string type_of(const Allocation& allocation) {
  return allocation.empty() ? "" : allocation.front().substr(0, allocation.front().find('-'));
}

}  // namespace

TEST_CASE("the fast GPUs go to the job that benefits most from them") {
  Problem problem;
  problem.nodes = nodes(1, 4, "slow");
  problem.nodes.push_back(node("fast-0", 4, "fast"));
  for (const char* name : {"a", "b"}) {
    problem.jobs.push_back(job(name, 4));
    problem.jobs.back().gpu_speed = {{"fast", name[0] == 'b' ? 8 : 1.2}, {"slow", 1}};
  }
  const Decision decision = decide(problem);
  check_constraints(problem, decision);
  CHECK(decision.allocations.at("a") == Allocation(4, "slow-0"));
  CHECK(decision.allocations.at("b") == Allocation(4, "fast-0"));
  CHECK_GOLDEN(decision.reasons.at("b"));
}

TEST_CASE("a faster GPU shortens computation but not synchronization") {
  Problem problem;
  problem.nodes = {node("slow-0", 4, "slow"), node("fast-0", 4, "fast")};
  for (const char* name : {"computes", "synchronises"}) {
    problem.jobs.push_back(job(name, 4));
    problem.jobs.back().min_replicas = 4;
    problem.jobs.back().speedup = name[0] == 'c' ? speedup(0.01, 0.001) : speedup(0.0001, 0.05);
    problem.jobs.back().gpu_speed = {{"fast", 4.0}};
  }
  const Decision decision = decide(problem);
  check_constraints(problem, decision);
  CHECK(type_of(decision.allocations.at("computes")) == "fast");
  CHECK(type_of(decision.allocations.at("synchronises")) == "slow");
}

TEST_CASE("allocations are powers of two within a node and whole nodes beyond") {
  Problem problem;
  problem.nodes = nodes(5, 8);
  std::mt19937 random(3);
  for (int i = 0; i < 12; ++i) {
    problem.jobs.push_back(job(fmt::format("job-{}", i)));
    problem.jobs.back().speedup = speedup(0.001 * (1 + i), 0.001 * static_cast<double>(random() % 50));
  }
  for (std::size_t count = 1; count <= 12; ++count) {
    Problem part = problem;
    part.jobs.resize(count);
    const Decision decision = decide(part);
    check_constraints(part, decision);
    for (const auto& [name, allocation] : decision.allocations) {
      const std::size_t replicas = allocation.size();
      CHECK((std::has_single_bit(replicas) || replicas % 8 == 0));
      CHECK(std::set(allocation.begin(), allocation.end()).size() == (replicas + 7) / 8);
      CHECK(replicas > 0);  // there is at least one GPU per job
    }
  }
}

TEST_CASE("solutions of small problems are optimal, as verified by enumeration") {
  std::mt19937 random(4);
  const auto up_to = [&random](int max_value) {
    return 1 + static_cast<int>(random() % static_cast<unsigned>(max_value));
  };
  for (int round = 0; round < 60; ++round) {
    Problem problem{.now = 1000};
    problem.nodes = nodes(up_to(2), 4, "slow");
    for (NodeInfo& one : nodes(up_to(2), 2, "fast")) problem.nodes.push_back(one);
    for (int i = 0; i < 4; ++i) {
      problem.jobs.push_back(job(fmt::format("job-{}", i), 8));
      JobInfo& one = problem.jobs.back();
      one.creation_time = 100.0 * i;
      one.num_restarts = up_to(3);
      if (i > 0) one.speedup = speedup(0.001 * up_to(9), 0.001 * up_to(30));
      one.gpu_speed = {{"fast", 0.5 * up_to(6)}};
      if (i == 1) problem.previous[one.name] = {"slow-0", "slow-0"};
    }
    const PolicyOptions options{.restart_cost = 30, .fairness = round % 3 == 0 ? 0.5 : round % 3 == 1 ? -1 : 0};
    const Decision decision = decide(problem, options);
    check_constraints(problem, decision);

    const sia::Model model = sia::make_model(problem, {options.restart_cost, options.fairness});
    // Nodes of a type are equal, and sizes are powers of two or whole nodes, so allocations that fit the total capacity
    // of each type can be placed.
    std::vector<std::int64_t> capacity(2, 0);
    for (const sia::Node& one : model.cluster.nodes) capacity[one.type] += one.free[0];
    double best = 0;
    const auto enumerate = [&](const auto& self, std::size_t i, double cost) -> void {
      if (i == model.jobs.size()) {
        best = std::min(best, cost);
        return;
      }
      self(self, i + 1, cost);
      for (const sia::Configuration& one : model.jobs[i].configurations) {
        if (capacity[one.type] < one.replicas) continue;
        capacity[one.type] -= one.replicas;
        self(self, i + 1, cost + one.cost - model.jobs[i].cost_of_nothing);
        capacity[one.type] += one.replicas;
      }
    };
    enumerate(enumerate, 0, 0);

    double cost = 0;
    for (const sia::Job& one : model.jobs) {
      const Allocation& allocation = decision.allocations.at(one.info->name);
      if (allocation.empty()) continue;
      const bool kept = problem.previous.contains(one.info->name) && allocation == problem.previous[one.info->name];
      const auto used = std::ranges::find_if(one.configurations, [&](const sia::Configuration& c) {
        return c.keep == kept && c.replicas == static_cast<int>(allocation.size()) &&
               model.cluster.types[c.type] == type_of(allocation);
      });
      REQUIRE(used != one.configurations.end());
      cost += used->cost - one.cost_of_nothing;
    }
    CHECK(cost == doctest::Approx(best).epsilon(1e-5));
  }
}

TEST_CASE("a job keeps its allocation until a change is worth the restart") {
  Problem problem{.now = 600};
  problem.nodes = nodes(2, 4);
  problem.jobs = {job("a", 4), job("b", 4)};
  const Decision first = decide(problem);
  problem.previous = first.allocations;
  CHECK(decide(problem).allocations == first.allocations);

  // A young job that has just restarted does not grow at first; later it also uses the free node.
  problem.jobs = {job("a", 8)};
  problem.jobs[0].speedup = speedup(0.01, 0.02);
  problem.previous = {{"a", {"node-0", "node-0", "node-0", "node-0"}}};
  problem.jobs[0].creation_time = 590;
  problem.jobs[0].num_restarts = 1;
  CHECK(decide(problem).allocations.at("a").size() == 4);
  CHECK(decide(problem).reasons.at("a").starts_with("keeps 4 replicas on 1 node"));
  problem.now = 36000;
  CHECK(decide(problem).allocations.at("a").size() == 8);
}

TEST_CASE("pinned jobs keep their allocations, and other jobs share the rest") {
  Problem problem;
  problem.nodes = nodes(2, 4);
  problem.jobs = {job("pinned"), job("other"), job("third")};
  problem.jobs[0].preemptible = false;
  problem.previous["pinned"] = {"node-0", "node-1", "node-1"};
  const Decision decision = decide(problem);
  check_constraints(problem, decision);
  CHECK(decision.allocations.at("pinned") == problem.previous["pinned"]);
  CHECK_GOLDEN(decision.reasons.at("pinned"));
  CHECK(decision.allocations.at("other").size() + decision.allocations.at("third").size() >= 4);

  // The allocation no longer fits once a node has shrunk.
  problem.nodes[1].resources[kGpu] = 1;
  const Decision smaller = decide(problem);
  CHECK(smaller.allocations.at("pinned") != problem.previous["pinned"]);
  CHECK(smaller.allocations.at("pinned").size() <= 4);
}

TEST_CASE("a minimum is respected even if it is not a power of two") {
  Problem problem;
  problem.nodes = nodes(3, 4);
  problem.jobs = {job("three", 3), job("six", 7)};
  problem.jobs[0].min_replicas = 3;
  problem.jobs[1].min_replicas = 6;
  const Decision decision = decide(problem);
  check_constraints(problem, decision);
  CHECK(decision.allocations.at("three").size() == 3);
  CHECK(decision.allocations.at("six").size() == 6);
}

TEST_CASE("jobs that cannot run wait, and the reason is reported") {
  Problem problem;
  problem.nodes = nodes(2, 4);
  problem.jobs = {job("fine"), job("large"), job("nan"), job("backwards", 1), job("nothing")};
  problem.jobs[1].min_replicas = 9;
  goodput::PerfParams perf{.alpha_c = kNaN};
  problem.jobs[2].speedup =
      std::make_shared<SpeedupFunction>(goodput::GoodputFunction(perf, {.sqr = 1, .var = 1}, 16), goodput::Limits{});
  problem.jobs[3].min_replicas = 2;
  problem.jobs[4].resources = {{kGpu, 0}};
  const Decision decision = decide(problem);
  check_constraints(problem, decision);
  CHECK(decision.allocations.at("fine").size() == 8);
  for (const auto& [name, reason] : std::map<std::string, std::string>{
           {"large", "waits: no room for the minimum number of replicas on nodes of a single type"},
           {"nan", "waits: no positive goodput on any number of replicas"},
           {"backwards", "waits: needs at least 2 replicas, but its maximum is 1"},
           {"nothing", "waits: requests no resources"}}) {
    CHECK(decision.allocations.at(name).empty());
    CHECK(decision.reasons.at(name) == reason);
  }
  problem.nodes.clear();
  const Decision without_nodes = decide(problem);
  check_constraints(problem, without_nodes);
  CHECK(without_nodes.allocations.at("fine").empty());
  CHECK(decide({}).allocations.empty());
}

TEST_CASE("decisions for random problems satisfy all constraints and are reproducible") {
  std::mt19937 random(5);
  const auto below = [&random](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  for (int round = 0; round < 150; ++round) {
    Problem problem{.now = 100.0 * below(100)};
    const char* types[] = {"", "a", "b"};
    for (int i = below(10); i > 0; --i) {
      problem.nodes.push_back(
          {fmt::format("n{}", i), {{kGpu, below(10) - 1}, {"cpu", below(64)}}, below(3) == 0, types[below(3)]});
    }
    for (int i = below(14); i > 0; --i) {
      JobInfo one = job(fmt::format("j{}", i), below(20) - 1);
      if (below(2) == 0) one.resources["cpu"] = below(9) - 1;
      one.min_replicas = below(3) == 0 ? below(6) : 0;
      one.preemptible = below(5) != 0;
      one.creation_time = below(2) == 0 ? kNaN : 50.0 * below(300);
      one.num_restarts = below(5);
      one.gpu_speed = {{"a", below(4) == 0 ? kNaN : below(5)}, {"b", 0.1 * below(50)}};
      if (below(3) > 0) one.speedup = speedup(0.001 * below(10), below(4) == 0 ? 1e300 : 0.01 * below(10));
      for (int replicas = below(6); replicas > 0 && one.preemptible; --replicas)
        problem.previous[one.name].push_back(fmt::format("n{}", below(12)));
      problem.jobs.push_back(one);
    }
    // The first decision provides the allocations that pinned jobs must keep.
    const Decision first = decide(problem);
    check_constraints(problem, first);
    problem.previous = first.allocations;
    problem.now += 60;
    const Decision second = decide(problem, {.fairness = below(2) == 0 ? -1e9 : 0.5});
    check_constraints(problem, second);
    const Decision again = decide(problem, {.fairness = -1});
    CHECK(again.allocations == decide(problem, {.fairness = -1}).allocations);
  }
}

TEST_CASE("the decision does not depend on the order of the nodes") {
  Problem problem;
  problem.nodes = nodes(4, 4);
  for (int i = 0; i < 6; ++i) problem.jobs.push_back(job(fmt::format("job-{}", i), 4));
  const Decision expected = decide(problem);
  std::ranges::reverse(problem.nodes);
  CHECK(decide(problem).allocations == expected.allocations);
}

TEST_CASE("a new job starts before others grow") {
  Problem problem{.now = 3600};
  problem.nodes = nodes(1, 4);
  problem.jobs = {job("large", 4), job("new", 1)};
  problem.jobs[0].speedup = speedup(0.01, 0.02);
  problem.previous["large"] = {"node-0", "node-0"};
  const Decision decision = decide(problem);
  CHECK(decision.allocations.at("new").size() == 1);
  problem.previous["large"] = Allocation(4, "node-0");
  CHECK(decide(problem).allocations.at("new").size() == 1);
}

}  // namespace sia_test
