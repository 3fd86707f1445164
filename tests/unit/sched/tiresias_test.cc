#include "policy/queue/tiresias.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "golden.h"
#include "queue_policies.h"

namespace adaptdl::sched::tiresias_test {
namespace {

constexpr double kLimit = 16 * 3600;

TEST_CASE("jobs get their requested size in arrival order, and smaller ones pass those that do not fit") {
  const auto policy = make_tiresias();
  Schedule schedule{*policy, {.nodes = gpu_nodes(2, 4)}};
  schedule.problem.jobs = {tuned_job("late", 30, 2), tuned_job("early", 10, 6), tuned_job("middle", 20, 3)};
  schedule.next();
  CHECK(schedule.replicas("early") == 6);
  CHECK(schedule.replicas("middle") == 0);
  CHECK(schedule.replicas("late") == 2);
  CHECK_GOLDEN(schedule.decision.reasons.at("early"));
  CHECK_GOLDEN(schedule.decision.reasons.at("middle"));
}

TEST_CASE("a job that has used 16 GPU-hours yields to one that has not") {
  const auto policy = make_tiresias();
  Schedule schedule{*policy, {.nodes = gpu_nodes(1, 4)}};
  schedule.problem.jobs = {tuned_job("old", 0, 4)};
  schedule.next();
  schedule.problem.jobs.push_back(tuned_job("new", 100, 4));
  schedule.job("old").attained_service = kLimit - 1;
  schedule.next();
  CHECK(schedule.replicas("old") == 4);
  CHECK(schedule.replicas("new") == 0);
  schedule.job("old").attained_service = kLimit;
  schedule.next();
  CHECK(schedule.replicas("old") == 0);
  CHECK(schedule.replicas("new") == 4);
  CHECK_GOLDEN(schedule.decision.reasons.at("old"));
}

TEST_CASE("the second queue is ordered by when jobs entered it, not by their arrival") {
  const auto policy = make_tiresias();
  Schedule schedule{*policy, {.nodes = gpu_nodes(1, 4)}};
  schedule.problem.jobs = {tuned_job("a", 0, 4), tuned_job("b", 10, 4)};
  schedule.job("b").attained_service = kLimit;
  schedule.next();
  CHECK(schedule.replicas("a") == 4);
  schedule.job("a").attained_service = kLimit;
  schedule.next();
  CHECK(schedule.replicas("b") == 4);
  CHECK(schedule.replicas("a") == 0);
  // Without its state, as after a restart of the scheduler, the queue is ordered by arrival.
  schedule.state = nullptr;
  schedule.next();
  CHECK(schedule.replicas("a") == 4);
}

TEST_CASE("new jobs go to the emptiest nodes, and running jobs stay") {
  const auto policy = make_tiresias();
  Schedule schedule{*policy, {.nodes = gpu_nodes(3, 4)}};
  schedule.problem.jobs = {tuned_job("a", 0, 2), tuned_job("b", 1, 3), tuned_job("c", 2, 4)};
  schedule.next();
  CHECK(schedule.decision.allocations.at("a") == Allocation(2, "n0"));
  CHECK(schedule.decision.allocations.at("b") == Allocation(3, "n1"));
  CHECK(schedule.decision.allocations.at("c") == Allocation(4, "n2"));
  schedule.remove("c");
  schedule.problem.jobs.push_back(tuned_job("d", 3, 6));
  schedule.next();
  CHECK(schedule.decision.allocations.at("a") == Allocation(2, "n0"));
  CHECK(schedule.decision.allocations.at("d") == Allocation{"n2", "n2", "n2", "n2", "n0", "n0"});
  CHECK_GOLDEN(schedule.decision.reasons.at("a"));
}

TEST_CASE("jobs that cannot run wait with a reason and do not block others") {
  const auto policy = make_tiresias();
  Schedule schedule{*policy, {.nodes = gpu_nodes(2, 4)}};
  JobInfo nothing = tuned_job("nothing", 0, 1), contrary = tuned_job("contrary", 0, 1), huge = tuned_job("huge", 0, 9);
  nothing.resources = {{"gpu", 0}};
  contrary.min_replicas = 5;
  contrary.max_replicas = 4;
  JobInfo bound = tuned_job("bound", 1, 7);
  bound.max_replicas = 3;
  schedule.problem.jobs = {nothing, contrary, huge, bound};
  schedule.next();
  for (const char* name : {"nothing", "contrary", "huge"}) CHECK(schedule.replicas(name) == 0);
  CHECK(schedule.replicas("bound") == 3);
  CHECK(schedule.decision.reasons.at("huge").starts_with(
      "waits: needs 9 replicas, but the nodes can hold only 8 in total"));
  CHECK_GOLDEN(schedule.decision.reasons.at("contrary"));
  schedule.problem.nodes.clear();
  schedule.next();
  CHECK(schedule.replicas("bound") == 0);
}

TEST_CASE("a replica fits only where all of its resources do") {
  const auto policy = make_tiresias();
  Schedule schedule{
      *policy,
      {.nodes = {{"few", {{"gpu", 8}, {"cpu", 3}}, false, ""}, {"many", {{"gpu", 4}, {"cpu", 90}}, false, ""}}}};
  JobInfo job = tuned_job("a", 0, 5);
  job.resources = {{"gpu", 1}, {"cpu", 2}};
  schedule.problem.jobs = {job};
  schedule.next();
  CHECK(schedule.decision.allocations.at("a") == Allocation{"many", "many", "many", "many", "few"});
}

TEST_CASE("a non-preemptible job keeps its allocation while an older job waits") {
  const auto policy = make_tiresias();
  Schedule schedule{*policy, {.nodes = gpu_nodes(1, 4)}};
  JobInfo pinned = tuned_job("pinned", 50, 2);
  pinned.preemptible = false;
  pinned.attained_service = 2 * kLimit;
  schedule.problem.jobs = {tuned_job("a", 0, 4), pinned};
  schedule.problem.previous = {{"pinned", {"n0", "n0", "n0"}}};
  schedule.next();
  CHECK(schedule.decision.allocations.at("pinned") == Allocation(3, "n0"));
  CHECK(schedule.replicas("a") == 0);
}

}  // namespace
}  // namespace adaptdl::sched::tiresias_test
