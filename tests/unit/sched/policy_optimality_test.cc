// Tests that Pollux's objectives are within 1% of the optimum on small problems. Both objectives are implemented here
// independently, from their definitions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "allocation_validator.h"
#include "exhaustive.h"
#include "policy/pollux/pollux.h"
#include "random_problem.h"

namespace policy_optimality_test {

using namespace adaptdl::sched;

namespace {

constexpr int kProblems = 300;
constexpr double kRestartCost = 30;

int pick(std::mt19937_64& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

// Returns up to 4 jobs on up to 4 different nodes, with one or two types of resources, minimums, pinned jobs, and jobs
// that are already running.
Problem small_problem(std::mt19937_64& random) {
  const int jobs = pick(random, 1, 4), nodes = pick(random, 1, 4);
  Problem problem = ordinary_problem(random, {jobs, nodes, 2, 0});
  const bool two_types = pick(random, 0, 1) == 1;
  for (NodeInfo& node : problem.nodes) {
    node.resources["nvidia.com/gpu"] = pick(random, 0, 4);
    if (two_types) node.resources["cpu"] = pick(random, 1, 6);
    node.preemptible = pick(random, 0, 3) == 0;
  }
  std::vector<NodeInfo> free = problem.nodes;
  for (JobInfo& job : problem.jobs) {
    job.profiled_replicas = pick(random, 0, 4);
    job.max_replicas = pick(random, 1, 6);
    if (pick(random, 0, 3) == 0) job.min_replicas = pick(random, 1, job.max_replicas);
    if (two_types) job.resources["cpu"] = pick(random, 0, 2);
    job.preemptible = pick(random, 0, 3) > 0;
    const int had = std::max(job.min_replicas, 1);
    if (pick(random, 0, 1) == 1) problem.previous[job.name] = allocate_job(job, free);
    Allocation& previous = problem.previous[job.name];
    if (static_cast<int>(previous.size()) != had) previous.clear();
    for (NodeInfo& node : free)
      for (const auto& [type, amount] : job.resources)
        node.resources[type] -= amount * std::count(previous.begin(), previous.end(), node.name);
  }
  return problem;
}

int most_replicas(const JobInfo& job) {
  return std::min(job.max_replicas, std::max({2 * job.profiled_replicas, job.min_replicas, 1}));
}

double dominant_share(const Problem& problem, const JobInfo& job) {
  double highest = 0;
  for (const auto& [type, amount] : job.resources) {
    double total = 0;
    for (const NodeInfo& node : problem.nodes)
      if (const auto there = node.resources.find(type); there != node.resources.end())
        total += static_cast<double>(there->second);
    if (amount > 0) highest = std::max(highest, static_cast<double>(amount) / total);
  }
  return highest;
}

bool changed(const Problem& problem, const JobInfo& job, const Row& row) {
  const auto previous = problem.previous.find(job.name);
  return row != row_of(problem, previous == problem.previous.end() ? Allocation() : previous->second);
}

int nodes_of(const Row& row) {
  return static_cast<int>(std::ranges::count_if(row, [](int count) { return count > 0; }));
}

int replicas_of(const Row& row) { return std::accumulate(row.begin(), row.end(), 0); }

double released_value(const Problem& problem, const JobInfo& job, const Row& row) {
  const int replicas = replicas_of(row);
  if (replicas == 0) return 0;
  const double speedup = job.speedup ? (*job.speedup)(nodes_of(row), replicas) : replicas;
  const double scale = dominant_share(problem, job) * static_cast<double>(problem.nodes.size());
  return speedup * scale * (changed(problem, job, row) ? 0.9 : 1);
}

// Returns a job's term in a power mean with exponent -1: the negative inverse of its speedup.
double paper_value(const Problem& problem, const JobInfo& job, const Row& row) {
  double speedup = replicas_of(row);
  if (speedup > 0) {
    const double share = dominant_share(problem, job);
    const int fair = static_cast<int>(std::ceil(1 / share / static_cast<double>(problem.jobs.size())));
    speedup = job.speedup ? job.speedup->goodput(nodes_of(row), replicas_of(row)) / job.speedup->goodput(1, fair)
                          : speedup / fair;
    speedup *= share * static_cast<double>(problem.nodes.size());
    const double age = problem.now - job.creation_time;
    if (changed(problem, job, row))
      speedup *= std::max(age - job.num_restarts * kRestartCost, 0.0) / (age + kRestartCost);
  }
  return -1 / (speedup + 1e-3);
}

using Value = double (*)(const Problem&, const JobInfo&, const Row&);

struct Sums {
  double ours = 0, best = 0;
};

Sums compare(const Problem& problem, const PolluxOptions& options, Value value) {
  const Decision decision = make_pollux(options)->optimize(problem, nullptr);
  CHECK(violations(problem, decision).empty());
  Sums sums;
  for (const JobInfo& job : problem.jobs)
    sums.ours += value(problem, job, row_of(problem, decision.allocations.at(job.name)));
  sums.best = best_by_trying_all(problem, most_replicas,
                                 [&](const JobInfo& job, const Row& row) { return value(problem, job, row); });
  return sums;
}

}  // namespace

TEST_CASE("on small problems, the sum of speedups under pollux-released is within 1% of the optimum") {
  for (int seed = 0; seed < kProblems; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const Sums sums = compare(small_problem(random), released_options({}), released_value);
    CHECK(sums.ours >= sums.best * 0.99);
    CHECK(sums.ours <= sums.best * (1 + 1e-9) + 1e-9);
  }
}

TEST_CASE("on small problems, the paper's power mean of speedups is within 1% of the optimum") {
  for (int seed = 0; seed < kProblems; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    PolluxOptions options = paper_options({.restart_cost = kRestartCost});
    options.search = PolluxSearch::kAdditive;
    const Sums sums = compare(small_problem(random), options, paper_value);
    // The mean is the number of jobs divided by the negative sum.
    CHECK(sums.best / sums.ours >= 0.99);
    CHECK(sums.best / sums.ours <= 1 + 1e-9);
  }
}

TEST_CASE("the genetic search is within 1% of the optimum on at least 95% of small problems" *
          doctest::test_suite("slow")) {
  int near = 0, asked = 0;
  for (int seed = 0; seed < kProblems; seed += 5, ++asked) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const Sums sums = compare(small_problem(random), paper_options({.restart_cost = kRestartCost}), paper_value);
    CHECK(sums.best / sums.ours <= 1 + 1e-9);
    near += sums.best / sums.ours >= 0.99;
  }
  CHECK(near >= asked * 95 / 100);
}

}  // namespace policy_optimality_test
