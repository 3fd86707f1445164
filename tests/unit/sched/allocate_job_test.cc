// Tests where a new job starts before its first cycle: on the first node with room for its minimum number of replicas.
#include <doctest/doctest.h>

#include "policy/base/policy.h"

namespace allocate_job_test {

using namespace adaptdl::sched;

namespace {

NodeInfo node(const std::string& name, std::int64_t gpus, bool preemptible = false) {
  return {name, {{"gpu", gpus}, {"cpu", 8}}, preemptible, ""};
}

JobInfo job(int min_replicas, int max_replicas = 8) {
  JobInfo info;
  info.name = "job";
  info.resources = {{"gpu", 1}, {"cpu", 2}};
  info.min_replicas = min_replicas;
  info.max_replicas = max_replicas;
  return info;
}

}  // namespace

TEST_CASE("a new job gets its minimum number of replicas, at least one, on one node") {
  CHECK(allocate_job(job(0), {node("a", 4)}) == Allocation{"a"});
  CHECK(allocate_job(job(3), {node("a", 4)}) == Allocation{"a", "a", "a"});
  CHECK(allocate_job(job(3), {node("a", 2), node("b", 3)}) == Allocation{"b", "b", "b"});
}

TEST_CASE("a new job is placed on nodes in the order of their names, on preemptible ones last") {
  CHECK(allocate_job(job(1), {node("a", 4, true), node("c", 4), node("b", 4)}) == Allocation{"b"});
  CHECK(allocate_job(job(1), {node("a", 4, true), node("b", 0)}) == Allocation{"a"});
}

TEST_CASE("a new job that fits on no single node waits for the next cycle") {
  CHECK(allocate_job(job(5), {node("a", 4), node("b", 4)}).empty());
  CHECK(allocate_job(job(5), {node("a", 8)}).empty());  // the CPUs suffice for only 4
  CHECK(allocate_job(job(1), {}).empty());
  CHECK(allocate_job(job(1), {{"a", {{"gpu", -2}, {"cpu", 8}}, false, ""}}).empty());
}

TEST_CASE("a job with invalid bounds or without resource requests gets no replicas") {
  CHECK(allocate_job(job(3, 2), {node("a", 4)}).empty());
  CHECK(allocate_job(job(0, 0), {node("a", 4)}).empty());
  JobInfo nothing = job(1);
  nothing.resources = {{"gpu", 0}};
  CHECK(allocate_job(nothing, {node("a", 4)}).empty());
}

}  // namespace allocate_job_test
