#include "policy/queue/fifo.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "golden.h"
#include "queue_policies.h"

namespace adaptdl::sched::fifo_test {
namespace {

TEST_CASE("jobs start in order of arrival, and a waiting job blocks those behind it") {
  const auto policy = make_fifo();
  Schedule schedule{*policy, {.nodes = gpu_nodes(2, 4)}};
  schedule.problem.jobs = {tuned_job("third", 3, 1), tuned_job("first", 1, 6), tuned_job("second", 2, 4)};
  schedule.next();
  CHECK(schedule.replicas("first") == 6);
  CHECK(schedule.replicas("second") == 0);
  CHECK(schedule.replicas("third") == 0);
  CHECK_GOLDEN(schedule.decision.reasons.at("second"));
  CHECK_GOLDEN(schedule.decision.reasons.at("third"));
  schedule.remove("first");
  schedule.next();
  CHECK(schedule.replicas("second") == 4);
  CHECK(schedule.replicas("third") == 1);
}

TEST_CASE("a running job is never interrupted, not even for an earlier job") {
  const auto policy = make_fifo();
  Schedule schedule{*policy, {.nodes = gpu_nodes(1, 4)}};
  schedule.problem.jobs = {tuned_job("running", 10, 3)};
  schedule.next();
  schedule.job("running").attained_service = 1e9;
  schedule.problem.jobs.push_back(tuned_job("earlier", 5, 2));
  schedule.next();
  CHECK(schedule.replicas("running") == 3);
  CHECK(schedule.replicas("earlier") == 0);
  CHECK_GOLDEN(schedule.decision.reasons.at("running"));
}

TEST_CASE("a job too large for the cluster is skipped") {
  const auto policy = make_fifo();
  Schedule schedule{*policy, {.nodes = gpu_nodes(2, 4)}};
  schedule.problem.jobs = {tuned_job("whale", 0, 9), tuned_job("fish", 1, 8), tuned_job("shrimp", 2, 1)};
  schedule.next();
  CHECK(schedule.replicas("whale") == 0);
  CHECK(schedule.replicas("fish") == 8);
  CHECK_GOLDEN(schedule.decision.reasons.at("whale"));
  CHECK_GOLDEN(schedule.decision.reasons.at("shrimp"));
}

TEST_CASE("a job that lost its node is queued and restarted in order") {
  const auto policy = make_fifo();
  Schedule schedule{*policy, {.nodes = gpu_nodes(2, 4)}};
  schedule.problem.jobs = {tuned_job("a", 0, 4), tuned_job("b", 1, 4)};
  schedule.next();
  schedule.problem.nodes.erase(schedule.problem.nodes.begin());
  schedule.next();
  CHECK(schedule.replicas("a") == 0);
  CHECK(schedule.decision.allocations.at("b") == Allocation(4, "n1"));
  schedule.remove("b");
  schedule.next();
  CHECK(schedule.decision.allocations.at("a") == Allocation(4, "n1"));
}

}  // namespace
}  // namespace adaptdl::sched::fifo_test
