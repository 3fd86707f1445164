// Tests that the decisions of policies respect every constraint, whatever the problem.
#include <doctest/doctest.h>

#include <limits>
#include <thread>

#include "allocation_validator.h"
#include "policy/policies.h"
#include "random_problem.h"

namespace policy_constraints_test {

using namespace adaptdl::sched;

namespace {

// Other policies follow the users' numbers of replicas, or try more replicas before anything has been measured.
bool promises_profiled_limit(std::string_view policy) { return policy == "pollux" || policy == "pollux-released"; }

void check(std::string_view name, const Policy& policy, const Problem& problem, const Decision& decision) {
  const Promises promises{promises_profiled_limit(name), policy.separates_distributed_jobs()};
  for (const std::string& violation : violations(problem, decision, promises)) FAIL_CHECK(violation);
}

// The genetic search creates 10,000 states for any problem, which takes seconds, so it gets fewer problems.
bool asked(std::string_view policy, int problem) { return policy != "pollux" || problem % 10 == 0; }

}  // namespace

namespace {

void check_random_problems(int count) {
  for (const std::string_view name : policy_names()) {
    CAPTURE(name);
    const auto policy = make_policy(name, {.seed = 7});
    for (int seed = 0; seed < count; ++seed) {
      if (!asked(name, seed)) continue;
      CAPTURE(seed);
      std::mt19937_64 random(static_cast<std::uint64_t>(seed));
      const Problem problem = any_problem(random);
      check(name, *policy, problem, policy->optimize(problem, nullptr));
    }
  }
}

}  // namespace

TEST_CASE("decisions on random and hostile problems respect every constraint" * doctest::test_suite("slow")) {
  check_random_problems(20);
}

TEST_CASE("decisions on 1000 random and hostile problems respect every constraint" * doctest::test_suite("full")) {
  check_random_problems(1000);
}

TEST_CASE("consecutive cycles respect every constraint while jobs and nodes come and go" *
          doctest::test_suite("slow")) {
  for (const std::string_view name : policy_names()) {
    CAPTURE(name);
    const auto policy = make_policy(name, {});
    std::shared_ptr<const PolicyState> state;
    Allocations previous;
    for (int cycle = 0; cycle < 12; ++cycle) {
      // Each problem is used in two cycles, and all problems use the same names of jobs and nodes.
      std::mt19937_64 random(static_cast<std::uint64_t>(cycle / 2));
      Problem problem = any_problem(random);
      problem.previous = previous;
      const Decision decision = policy->optimize(problem, state);
      check(name, *policy, problem, decision);
      previous = decision.allocations;
      state = decision.state;
    }
  }
}

namespace {

void check_large_problem(int jobs, int nodes) {
  for (const std::string_view name : policy_names()) {
    CAPTURE(name);
    std::mt19937_64 random(3);
    const bool genetic = name == "pollux";
    const Problem problem = ordinary_problem(random, {genetic ? 5 : jobs, genetic ? 500 : nodes, 4, 0.5});
    const auto policy = make_policy(name, {});
    check(name, *policy, problem, policy->optimize(problem, nullptr));
  }
}

}  // namespace

TEST_CASE("decisions for hundreds of nodes and jobs respect every constraint" * doctest::test_suite("slow")) {
  check_large_problem(200, 600);
}

TEST_CASE("decisions for thousands of nodes and jobs respect every constraint" * doctest::test_suite("full")) {
  check_large_problem(1000, 3000);
}

TEST_CASE("unlimited jobs on unlimited nodes do not exceed the policies' replica limit" * doctest::test_suite("slow")) {
  constexpr int kUnlimited = std::numeric_limits<int>::max();
  Problem problem;
  problem.now = 1000;
  for (const char* node : {"node-0", "node-1", "node-2"})
    problem.nodes.push_back({node, {{"nvidia.com/gpu", std::numeric_limits<std::int64_t>::max()}}, false, ""});
  std::mt19937_64 random(1);
  for (int number = 0; number < 50; ++number) {
    JobInfo& job = problem.jobs.emplace_back();
    job.name = "job-" + std::to_string(number);
    job.resources = {{"nvidia.com/gpu", 1}};
    job.max_replicas = job.profiled_replicas = kUnlimited;
    job.remaining_time = [](int replicas) { return 1e9 / replicas; };
    job.speedup = ordinary_speedup(random);
  }
  problem.jobs.back().min_replicas = kUnlimited;
  for (const std::string_view name : policy_names()) {
    CAPTURE(name);
    const auto policy = make_policy(name, {});
    const Decision decision = policy->optimize(problem, nullptr);
    check(name, *policy, problem, decision);
    for (const auto& [job, allocation] : decision.allocations) CHECK(allocation.size() <= kMaxReplicasPerJob);
    CHECK_FALSE(decision.allocations.at("job-0").empty());
    CHECK(decision.allocations.at("job-49").empty());
    CHECK(decision.reasons.at("job-49").find("job gets") != std::string::npos);
  }
  CHECK(allocate_job(problem.jobs.back(), problem.nodes).empty());
}

TEST_CASE("nodes with pinned jobs are not overcommitted, even if the sum of the requests would overflow") {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  Problem problem;
  problem.now = 1000;
  problem.nodes = {{"node-0", {{"memory", kAll}}, false, ""}, {"node-1", {{"memory", kAll}}, false, ""}};
  for (const auto& [name, memory] : {std::pair{"pinned", kAll - 2}, {"small", std::int64_t{1}}, {"huge", kAll - 1}}) {
    JobInfo& job = problem.jobs.emplace_back();
    job.name = name;
    job.resources = {{"memory", memory}};
    job.max_replicas = 4;
    job.profiled_replicas = 2;
    problem.previous[name] = {"node-0"};
  }
  problem.jobs.front().preemptible = false;
  problem.previous["small"].push_back("node-0");
  for (const std::string_view name : policy_names()) {
    CAPTURE(name);
    const auto policy = make_policy(name, {});
    check(name, *policy, problem, policy->optimize(problem, nullptr));
  }
}

TEST_CASE("decisions for the same seed and problem are identical across threads") {
  for (const std::string_view name : policy_names()) {
    CAPTURE(name);
    std::vector<Decision> decisions(4);
    std::vector<std::thread> threads;
    for (Decision& decision : decisions)
      threads.emplace_back([&decision, name] {
        std::mt19937_64 random(11);
        const Problem problem = ordinary_problem(random, {20, 8, 4, 0.5});
        const auto policy = make_policy(name, {.seed = 5});
        const Decision first = policy->optimize(problem, nullptr);
        Problem next = problem;
        next.previous = first.allocations;
        decision = policy->optimize(next, first.state);
      });
    for (std::thread& thread : threads) thread.join();
    for (const Decision& decision : decisions) {
      CHECK(decision.allocations == decisions[0].allocations);
      CHECK(decision.reasons == decisions[0].reasons);
      CHECK(decision.desired_nodes == decisions[0].desired_nodes);
    }
  }
}

}  // namespace policy_constraints_test
