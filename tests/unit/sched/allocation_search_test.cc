// Tests the search over allocations: the result respects all limits and is optimal.
#include "policy/search/allocation_search.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "policy/search/search_state.h"
#include "policy/search/size_choice.h"

namespace allocation_search_test {

using namespace adaptdl::sched;

namespace {

struct Shape {
  int jobs, nodes, most_gpus, resources;
};

double uniform(std::mt19937& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

int pick(std::mt19937& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

// Sets values that grow sublinearly, and more slowly across nodes. With `fair`, the values are the unweighted terms of
// a power mean.
void give_values(SearchJob& job, std::mt19937& random, bool fair) {
  const double on_one = uniform(random, 0.6, 1), on_many = on_one * uniform(random, 0.5, 1);
  const double weight = std::exp(uniform(random, -2, 2)), changed = uniform(random, 0.3, 1);
  const auto value = [&](double replicas, double exponent, double factor) {
    const double speedup = replicas > 0 ? factor * std::pow(replicas, exponent) : 0;
    return fair ? -1 / (speedup + 1e-3) : weight * speedup;
  };
  for (int r = 0; r <= job.max_replicas; ++r) {
    job.one_node.push_back(value(r, on_one, changed));
    job.many_nodes.push_back(value(r, on_many, changed));
  }
  job.keep = value(replica_count(job.previous), job.previous.size() > 1 ? on_many : on_one, 1);
}

SearchProblem random_problem(std::mt19937& random, const Shape& shape) {
  SearchProblem problem;
  const bool fair = pick(random, 0, 1) == 0;
  for (int n = 0; n < shape.nodes; ++n) {
    SearchNode node;
    for (int r = 0; r < shape.resources; ++r) node.capacity.push_back(pick(random, 0, shape.most_gpus));
    problem.nodes.push_back(node);
  }
  for (int j = 0; j < shape.jobs; ++j) {
    SearchJob job;
    for (int r = 0; r < shape.resources; ++r) job.demand.push_back(shape.resources == 1 ? 1 : pick(random, 0, 2));
    job.max_replicas = pick(random, 1, 8);
    job.min_replicas = pick(random, 0, 3) == 0 ? pick(random, 0, job.max_replicas) : 0;
    problem.jobs.push_back(job);
  }
  // The running allocations are the result of a search with different values.
  SearchProblem before = problem;
  for (SearchJob& job : before.jobs) give_values(job, random, fair);
  const SearchResult running = search_allocations(before);
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    SearchJob& job = problem.jobs[j];
    if (pick(random, 0, 2) > 0) job.previous = running.placements[j];
    job.pinned = !job.previous.empty() && pick(random, 0, 4) == 0;
    give_values(job, random, fair);
  }
  return problem;
}

void check_limits(const SearchProblem& problem, const SearchResult& result) {
  REQUIRE(result.placements.size() == problem.jobs.size());
  std::vector<std::vector<std::int64_t>> free;
  std::vector<int> distributed(problem.nodes.size());
  for (const SearchNode& node : problem.nodes) free.push_back(node.capacity);
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    const SearchJob& job = problem.jobs[j];
    const Placement& placement = result.placements[j];
    if (job.pinned) CHECK(placement == job.previous);
    const int replicas = replica_count(placement);
    if (!job.pinned && replicas > 0) {
      CHECK(replicas >= job.min_replicas);
      CHECK(replicas <= job.max_replicas);
    }
    for (const Share& share : placement) {
      CHECK(share.replicas >= 1);
      const auto node = static_cast<std::size_t>(share.node);
      for (std::size_t r = 0; r < job.demand.size(); ++r) free[node][r] -= share.replicas * job.demand[r];
      if (!job.pinned && placement.size() > 1) ++distributed[node];
    }
  }
  for (const auto& node : free) CHECK(std::ranges::all_of(node, [](std::int64_t left) { return left >= 0; }));
  CHECK(std::ranges::all_of(distributed, [](int jobs) { return jobs <= 1; }));
  CHECK(result.value == doctest::Approx(allocation_value(problem, result.placements)));
}

// Enumerates all allocations, one job after the other.
class Enumeration {
 public:
  explicit Enumeration(const SearchProblem& problem) : problem_(problem), state_(problem) { descend_jobs(0); }
  double best() const { return best_; }

 private:
  void descend_jobs(int job) {
    if (job == static_cast<int>(problem_.jobs.size())) {
      best_ = std::max(best_, allocation_value(problem_, state_.placements()));
    } else if (problem_.jobs[static_cast<std::size_t>(job)].pinned) {
      descend_jobs(job + 1);
    } else {
      Placement placement;
      descend_nodes(job, 0, placement);
    }
  }

  void descend_nodes(int job, int node, Placement& placement) {
    const SearchJob& about = problem_.jobs[static_cast<std::size_t>(job)];
    if (node < static_cast<int>(problem_.nodes.size())) {
      const int max_count = std::min(state_.room(job, node), about.max_replicas - replica_count(placement));
      for (int replicas = 0; replicas <= max_count; ++replicas) {
        if (replicas > 0) placement.push_back({node, replicas});
        descend_nodes(job, node + 1, placement);
        if (replicas > 0) placement.pop_back();
      }
      return;
    }
    if (!placement.empty() && (replica_count(placement) < about.min_replicas || !state_.fits(job, placement))) return;
    state_.place(job, placement);
    descend_jobs(job + 1);
    state_.remove(job);
  }

  const SearchProblem& problem_;
  SearchState state_;
  double best_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

TEST_CASE("allocations respect capacity, bounds and pins, with at most one distributed job per node" *
          doctest::test_suite("slow")) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const Shape shape = {pick(random, 0, 40), pick(random, 0, 12), pick(random, 1, 8), pick(random, 1, 3)};
    const SearchProblem problem = random_problem(random, shape);
    check_limits(problem, search_allocations(problem));
  }
}

TEST_CASE("small problems are solved within 1% of the optimum") {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const SearchProblem problem =
        random_problem(random, {pick(random, 1, 3), pick(random, 1, 3), pick(random, 1, 4), pick(random, 1, 2)});
    const double best = Enumeration(problem).best();
    CHECK(search_allocations(problem).value >= best - 0.01 * std::abs(best) - 1e-9);
  }
}

TEST_CASE("on a large cluster, the allocations' value is within 2% of an upper bound that ignores nodes") {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    SearchProblem problem;
    for (int n = 0; n < 16; ++n) problem.nodes.push_back({{4}});
    for (int j = pick(random, 10, 160); j > 0; --j) {
      SearchJob job{.demand = {1}, .max_replicas = pick(random, 1, 64)};
      give_values(job, random, i % 2 == 0);
      problem.jobs.push_back(job);
    }
    double bound = 0;
    for (const SizeChoice& choice : choose_sizes(problem)) bound += choice.value;
    const SearchResult result = search_allocations(problem);
    check_limits(problem, result);
    CHECK(result.value >= bound - 0.02 * std::abs(bound));
  }
}

TEST_CASE("a job whose gain is below the cost of a change keeps its placement") {
  SearchProblem problem;
  for (int n = 0; n < 2; ++n) problem.nodes.push_back({{4}});
  SearchJob job{.demand = {1}, .max_replicas = 4, .previous = {{1, 3}}};
  job.one_node = job.many_nodes = {0, 0.9, 1.8, 2.7, 3.6};
  job.keep = 3.7;
  problem.jobs.push_back(job);
  CHECK(search_allocations(problem).placements[0] == job.previous);
  problem.jobs[0].keep = 3.5;
  CHECK(replica_count(search_allocations(problem).placements[0]) == 4);
}

TEST_CASE("a small job moves to free a node for a large one") {
  SearchProblem problem;
  for (int n = 0; n < 2; ++n) problem.nodes.push_back({{4}});
  for (int n = 0; n < 2; ++n) {
    problem.jobs.push_back({.demand = {1}, .max_replicas = 1, .previous = {{n, 1}}, .one_node = {0, 0.9}, .keep = 1});
  }
  // Across several nodes the job is worth little.
  problem.jobs.push_back({.demand = {1},
                          .min_replicas = 4,
                          .max_replicas = 4,
                          .one_node = {0, 1, 2, 3, 4},
                          .many_nodes = {0, 0, 0, 0, 0.5}});
  const SearchResult result = search_allocations(problem);
  CHECK(result.value == doctest::Approx(5.9));
  CHECK(result.placements[2].size() == 1);
}

TEST_CASE("the search is deterministic") {
  std::mt19937 random(4);
  const SearchProblem problem = random_problem(random, {60, 16, 8, 2});
  CHECK(search_allocations(problem).placements == search_allocations(problem).placements);
}

}  // namespace allocation_search_test
