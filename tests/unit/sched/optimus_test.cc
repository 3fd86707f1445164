#include "policy/queue/optimus.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "golden.h"
#include "queue_policies.h"

namespace adaptdl::sched::optimus_test {
namespace {

// Returns a job that needs `seconds` more on one replica; the fraction `parallel` of that time is divided among its
// replicas.
JobInfo job(const std::string& name, double time, double seconds, double parallel) {
  JobInfo result = tuned_job(name, time, 1);
  result.remaining_time = [=](int replicas) { return seconds * (1 - parallel + parallel / replicas); };
  return result;
}

TEST_CASE("each job gets a replica before any gets a second") {
  const auto policy = make_optimus();
  Schedule schedule{*policy, {.nodes = gpu_nodes(1, 4)}};
  schedule.problem.jobs = {job("a", 0, 1e6, 1), job("b", 1, 10, 1), job("c", 2, 10, 0), job("d", 3, 1, 1),
                           job("e", 4, 1e9, 1)};
  schedule.next();
  for (const char* name : {"a", "b", "c", "d"}) CHECK(schedule.replicas(name) == 1);
  CHECK(schedule.replicas("e") == 0);
  CHECK_GOLDEN(schedule.decision.reasons.at("e"));
}

TEST_CASE("job sizes minimize the total remaining time") {
  const auto policy = make_optimus();
  Schedule schedule{*policy, {.nodes = gpu_nodes(2, 4)}};
  schedule.problem.jobs = {job("a", 0, 1000, 0.95), job("b", 1, 700, 0.5), job("c", 2, 900, 0.8)};
  schedule.next();
  // The remaining times are convex here, so that single steps lead to the optimal sizes.
  const auto total = [&](int a, int b, int c) {
    return schedule.job("a").remaining_time(a) + schedule.job("b").remaining_time(b) +
           schedule.job("c").remaining_time(c);
  };
  double best = std::numeric_limits<double>::infinity();
  for (int a = 1; a <= 6; ++a) {
    for (int b = 1; a + b <= 7; ++b) best = std::min(best, total(a, b, 8 - a - b));
  }
  CHECK(total(static_cast<int>(schedule.replicas("a")), static_cast<int>(schedule.replicas("b")),
              static_cast<int>(schedule.replicas("c"))) == doctest::Approx(best));
}

TEST_CASE("no job gets more replicas than it may have or benefits from") {
  const auto policy = make_optimus();
  Schedule schedule{*policy, {.nodes = gpu_nodes(4, 4)}};
  JobInfo bound = job("bound", 0, 1e6, 1), slower = job("slower", 1, 100, -1), unknown = tuned_job("unknown", 2, 8);
  bound.max_replicas = 3;
  JobInfo broken = tuned_job("broken", 3, 8);
  broken.remaining_time = [](int replicas) { return replicas > 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0; };
  schedule.problem.jobs = {bound, slower, unknown, broken};
  schedule.next();
  CHECK(schedule.replicas("bound") == 3);
  for (const char* name : {"slower", "unknown", "broken"}) CHECK(schedule.replicas(name) == 1);
  CHECK_GOLDEN(schedule.decision.reasons.at("unknown"));
}

TEST_CASE("a job that keeps its size stays, and others go to the emptiest nodes, smallest first") {
  const auto policy = make_optimus();
  Schedule schedule{*policy, {.nodes = gpu_nodes(2, 4)}};
  JobInfo a = job("a", 0, 1000, 1), b = job("b", 1, 1000, 1), c = job("c", 2, 1000, 1);
  a.max_replicas = 2;
  b.max_replicas = 3;
  c.max_replicas = 3;
  schedule.problem.jobs = {b, a};
  schedule.problem.previous = {{"b", {"n1", "n1", "n1"}}};
  schedule.next();
  CHECK(schedule.decision.allocations.at("b") == Allocation(3, "n1"));
  CHECK(schedule.decision.allocations.at("a") == Allocation(2, "n0"));
  schedule.problem.jobs = {b, a, c};
  schedule.next();
  CHECK(schedule.decision.allocations.at("c") == Allocation{"n0", "n0", "n1"});
  CHECK_GOLDEN(schedule.decision.reasons.at("b"));
}

TEST_CASE("a job gets its minimum number of replicas at once or none") {
  const auto policy = make_optimus();
  Schedule schedule{*policy, {.nodes = gpu_nodes(1, 4)}};
  JobInfo three = job("three", 0, 10, 0), another = job("another", 1, 10, 0);
  three.min_replicas = another.min_replicas = 3;
  schedule.problem.jobs = {three, another, job("one", 2, 10, 0)};
  schedule.next();
  CHECK(schedule.replicas("three") == 3);
  CHECK(schedule.replicas("another") == 0);
  CHECK(schedule.replicas("one") == 1);
}

}  // namespace
}  // namespace adaptdl::sched::optimus_test
