#include "operator/cluster/allocator.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "golden.h"
#include "policy/policies.h"

namespace operator_allocator_test {

using namespace adaptdl::sched;
using nlohmann::json;

namespace {

NodeFacts make_node(const std::string& name, int gpus, const std::string& zone = "z") {
  return {.name = name,
          .gpu_type = "",
          .allocatable = {{"gpu", gpus}, {"pods", 10}},
          .ready = true,
          .labels = {{"zone", zone}},
          .taints = json::array()};
}

// Returns a job that can use any number of replicas up to `max`, each with one GPU.
AllocatorJob make_job(const std::string& name, int min = 0, int max = 8) {
  AllocatorJob job;
  job.info.name = "ns/" + name;
  job.info.resources = {{"gpu", 1}, {"pods", 1}};
  job.info.min_replicas = min;
  job.info.max_replicas = max;
  job.info.preemptible = true;
  job.info.profiled_replicas = 8;
  job.pod = json::object();
  return job;
}

AllocatorJob in_zone(AllocatorJob job, const std::string& zone) {
  job.pod = {{"spec", {{"nodeSelector", {{"zone", zone}}}}}};
  return job;
}

AllocatorJob waiting(AllocatorJob job) {
  job.waits_for_first_fit = true;
  return job;
}

AllocatorJob on(AllocatorJob job, const Allocation& nodes, bool preemptible = true) {
  job.current = nodes;
  for (const std::string& node : nodes) ++job.live[node];
  job.info.preemptible = preemptible;
  return job;
}

JobDecisions cycle(const AllocatorCluster& cluster, const char* policy = "adaptive") {
  return Allocator(make_policy(policy, {})).cycle(cluster).jobs;
}

// Returns the number of replicas that the decisions place on the node.
std::int64_t given(const JobDecisions& decisions, const std::string& node) {
  std::int64_t count = 0;
  for (const auto& [name, decision] : decisions) count += std::ranges::count(decision.nodes, node);
  return count;
}

}  // namespace

TEST_CASE("first fit places a waiting job's minimum number of replicas on one node with enough free resources") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 4), make_node("b", 4)};
  cluster.used["a"] = {{"gpu", 3}, {"pods", 3}};
  cluster.jobs = {waiting(make_job("one")), waiting(make_job("two", 2))};
  const JobDecisions decisions = Allocator::first_fit(cluster);
  CHECK(decisions.at("ns/one").nodes == Allocation{"a"});
  CHECK(decisions.at("ns/two").nodes == Allocation{"b", "b"});
}

TEST_CASE("first fit does not allocate the same resources twice") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2)};
  SUBCASE("resources given to other new jobs") {
    cluster.jobs = {waiting(make_job("x")), waiting(make_job("y")), waiting(make_job("z"))};
    CHECK(Allocator::first_fit(cluster).size() == 2);
  }
  SUBCASE("resources of an allocation whose pods do not exist yet") {
    cluster.jobs = {waiting(make_job("x")), on(make_job("y"), {"a", "a"})};
    cluster.jobs[1].live.clear();
    CHECK(Allocator::first_fit(cluster).empty());
  }
  SUBCASE("resources of live pods whose job has a different allocation") {
    cluster.jobs = {waiting(make_job("x")), on(make_job("y"), {"a", "a"})};
    cluster.jobs[1].current = {};
    CHECK(Allocator::first_fit(cluster).empty());
    cluster.jobs[1].current = {"a"};
    CHECK(Allocator::first_fit(cluster).empty());
    cluster.jobs[1].live["a"] = 1;
    CHECK(Allocator::first_fit(cluster).size() == 1);
  }
  SUBCASE("resources of a paused job's pods") {
    cluster.jobs = {waiting(make_job("x")), on(make_job("y"), {"a", "a"})};
    cluster.jobs[1].current = {};
    cluster.jobs[1].held = true;
    CHECK(Allocator::first_fit(cluster).empty());
  }
}

TEST_CASE("first fit skips jobs that are paused, are not waiting for it, or fit nowhere") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 4)};
  cluster.jobs = {waiting(make_job("held")), make_job("other"), waiting(make_job("large", 5)),
                  waiting(in_zone(make_job("elsewhere"), "y"))};
  cluster.jobs[0].held = true;
  CHECK(Allocator::first_fit(cluster).empty());
}

TEST_CASE("first fit allocates nodes to the oldest job first") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 1)};
  cluster.jobs = {waiting(make_job("a-new")), waiting(make_job("z-old"))};
  cluster.jobs[0].info.creation_time = 2;
  cluster.jobs[1].info.creation_time = 1;
  const JobDecisions decisions = Allocator::first_fit(cluster);
  CHECK(decisions.size() == 1);
  CHECK(decisions.contains("ns/z-old"));
}

TEST_CASE("preemptible jobs move off a node that is about to be removed") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2), make_node("b", 2)};
  cluster.jobs = {on(make_job("moved", 0, 2), {"a", "b"}), on(make_job("fixed"), {"b"}, false)};
  CHECK_FALSE(Allocator::must_move_job(cluster));
  cluster.nodes[1].leaving = "taint gone";
  CHECK(Allocator::must_move_job(cluster));
  for (const std::string policy : {"adaptive", "pollux", "fifo"}) {
    CAPTURE(policy);
    const JobDecisions decisions = cycle(cluster, policy.c_str());
    CHECK_FALSE(decisions.contains("ns/fixed"));
    const JobDecision& moved = decisions.at("ns/moved");
    CHECK(!moved.nodes.empty());
    CHECK(std::ranges::count(moved.nodes, "b") == 0);
    CHECK_GOLDEN(moved.reason);
  }
  SUBCASE("no other node has room") {
    cluster.used["a"] = {{"gpu", 2}};
    const JobDecision moved = cycle(cluster).at("ns/moved");
    CHECK(moved.nodes.empty());
    CHECK(moved.reason.starts_with("waits: "));
  }
  SUBCASE("the job has already moved") {
    cluster.jobs[0].current = {"a"};
    CHECK_FALSE(Allocator::must_move_job(cluster));
  }
  SUBCASE("the job is paused") {
    cluster.jobs[0].held = true;
    CHECK_FALSE(Allocator::must_move_job(cluster));
  }
}

TEST_CASE("new jobs receive nodes by first fit only under policies that adapt the batch size") {
  CHECK(Allocator(make_policy("adaptive", {})).uses_first_fit());
  CHECK_FALSE(Allocator(make_policy("fifo", {})).uses_first_fit());
}

TEST_CASE("a job restricted to some of the nodes does not push a running job below its minimum number of replicas") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 4, "x"), make_node("b", 0, "y")};
  cluster.jobs = {in_zone(make_job("picky"), "x"), on(make_job("other", 2), {"a", "a", "a"})};
  const JobDecisions decisions = cycle(cluster);
  CHECK(decisions.at("ns/picky").nodes.size() <= 2);
  CHECK(decisions.at("ns/other").nodes.size() >= 2);
}

TEST_CASE("a job remains placeable while the only node that it fits on is not ready") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 4)};
  cluster.nodes[0].ready = false;
  cluster.jobs = {make_job("one"), make_job("large", 5)};
  const JobDecisions decisions = cycle(cluster);
  CHECK(decisions.at("ns/one").placeable);
  CHECK_FALSE(decisions.at("ns/large").placeable);
}

TEST_CASE("allocations respect a node's pod limit") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 100)};
  cluster.used["a"] = {{"pods", 9}};
  for (const char* name : {"x", "y"}) cluster.jobs.push_back(waiting(make_job(name)));
  CHECK(Allocator::first_fit(cluster).size() == 1);
  CHECK(given(cycle(cluster), "a") == 1);
}

TEST_CASE("a cycle decides on every job that is not paused and stays within the free resources") {
  for (const std::string_view policy : policy_names()) {
    CAPTURE(policy);
    AllocatorCluster cluster;
    cluster.nodes = {make_node("a", 4), make_node("b", 4)};
    cluster.used["a"] = {{"gpu", 3}};
    cluster.jobs = {make_job("x", 0, 2), make_job("y", 2, 2), make_job("held")};
    cluster.jobs[2].held = true;
    const JobDecisions decisions = cycle(cluster, std::string(policy).c_str());
    REQUIRE(decisions.size() == 2);
    CHECK_FALSE(decisions.at("ns/x").reason.empty());
    CHECK(decisions.at("ns/y").nodes == Allocation{"b", "b"});
    CHECK(given(decisions, "a") <= 1);
    CHECK(given(decisions, "b") <= 4);
    CHECK_FALSE(decisions.contains("ns/held"));
  }
}

TEST_CASE("jobs get only nodes that they may use, and job groups do not overcommit shared nodes") {
  for (const std::string_view policy : policy_names()) {
    CAPTURE(policy);
    AllocatorCluster cluster;
    cluster.nodes = {make_node("a", 2, "y"), make_node("b", 2, "z")};
    cluster.jobs = {make_job("any"), in_zone(make_job("y"), "y"), in_zone(make_job("z", 1, 1), "z")};
    const JobDecisions decisions = cycle(cluster, std::string(policy).c_str());
    CHECK(std::ranges::count(decisions.at("ns/y").nodes, "b") == 0);
    CHECK(decisions.at("ns/z").nodes == Allocation{"b"});
    CHECK(given(decisions, "a") <= 2);
    CHECK(given(decisions, "b") <= 2);
  }
}

TEST_CASE("a pinned job's nodes are not allocated to a job restricted to some of the nodes") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2, "y"), make_node("b", 2, "z")};
  cluster.jobs = {on(make_job("pinned"), {"a", "a"}, false), in_zone(make_job("y"), "y")};
  for (const std::string_view policy : policy_names()) {
    CAPTURE(policy);
    const JobDecisions decisions = cycle(cluster, std::string(policy).c_str());
    CHECK_FALSE(decisions.contains("ns/pinned"));
    CHECK(decisions.at("ns/y").nodes.empty());
    CHECK(decisions.at("ns/y").placeable);
  }
}

TEST_CASE("a pinned job keeps running when its node is cordoned, not ready or lacks a resource") {
  enum class Trouble { kCordoned, kNotReady, kNoGpu };
  for (const std::string_view policy : policy_names()) {
    for (const Trouble trouble : {Trouble::kCordoned, Trouble::kNotReady, Trouble::kNoGpu}) {
      CAPTURE(policy);
      CAPTURE(static_cast<int>(trouble));
      AllocatorCluster cluster;
      cluster.nodes = {make_node("a", 2), make_node("b", 2)};
      cluster.jobs = {on(make_job("pinned"), {"a", "b"}, false), make_job("other", 0, 1)};
      if (trouble == Trouble::kCordoned) cluster.nodes[1].taints.push_back({{"key", "x"}, {"effect", "NoSchedule"}});
      if (trouble == Trouble::kNotReady) cluster.nodes[1].ready = false;
      if (trouble == Trouble::kNoGpu) cluster.nodes[1].allocatable["gpu"] = 0;  // its device plugin is restarting
      const JobDecisions decisions = cycle(cluster, std::string(policy).c_str());
      CHECK_FALSE(decisions.contains("ns/pinned"));
      CHECK(decisions.at("ns/other").nodes == Allocation{"a"});
    }
  }
}

TEST_CASE("a pinned job keeps its nodes before its pods exist") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2, "y"), make_node("b", 2, "z")};
  cluster.jobs = {on(make_job("pinned"), {"a", "a"}, false), in_zone(make_job("y"), "y")};
  cluster.jobs[0].live.clear();
  const JobDecisions decisions = cycle(cluster);
  CHECK(decisions.at("ns/pinned").nodes == Allocation{"a", "a"});
  CHECK(decisions.at("ns/y").nodes.empty());
}

TEST_CASE("before it starts, a pinned job does not keep a node that is not ready") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2), make_node("b", 2)};
  cluster.nodes[1].ready = false;
  cluster.jobs = {on(make_job("pinned", 1, 1), {"b"}, false)};
  cluster.jobs[0].live.clear();
  CHECK(cycle(cluster).at("ns/pinned").nodes != Allocation{"b"});
}

TEST_CASE("a preemptible job leaves a cordoned node") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2), make_node("b", 2)};
  cluster.nodes[1].taints.push_back({{"key", "x"}, {"effect", "NoSchedule"}});
  cluster.jobs = {on(make_job("job"), {"a", "b"})};
  const Allocation nodes = cycle(cluster).at("ns/job").nodes;
  CHECK_FALSE(nodes.empty());
  CHECK(std::ranges::count(nodes, "b") == 0);
}

TEST_CASE("jobs that must wait are distinguished from jobs that can never fit") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2), make_node("b", 2)};
  cluster.used["a"] = cluster.used["b"] = {{"gpu", 2}};
  cluster.jobs = {make_job("waits", 4), make_job("never", 5)};
  AllocatorJob fpga = make_job("fpga");
  fpga.info.resources["fpga"] = 1;
  cluster.jobs.push_back(fpga);
  const JobDecisions decisions = cycle(cluster);
  for (const auto& [name, decision] : decisions) CHECK(decision.nodes.empty());
  CHECK(decisions.at("ns/waits").placeable);
  CHECK_FALSE(decisions.at("ns/never").placeable);
  CHECK_FALSE(decisions.at("ns/fpga").placeable);
}

TEST_CASE("the reason explains why a job has no usable node") {
  AllocatorCluster cluster;
  cluster.jobs = {in_zone(make_job("job"), "y")};
  CHECK_GOLDEN(cycle(cluster).at("ns/job").reason);
  cluster.nodes = {make_node("a", 2)};
  CHECK_GOLDEN(cycle(cluster).at("ns/job").reason);
  CHECK_FALSE(cycle(cluster).at("ns/job").placeable);
  cluster.nodes[0].ready = false;
  CHECK_GOLDEN(cycle(cluster).at("ns/job").reason);
}

TEST_CASE("consecutive cycles on an unchanged cluster move no job") {
  AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 2), make_node("b", 2)};
  cluster.jobs = {make_job("x"), make_job("y"), in_zone(make_job("z"), "z")};
  Allocator allocator(make_policy("adaptive", {}));
  JobDecisions before = allocator.cycle(cluster).jobs;
  for (int i = 0; i < 3; ++i) {
    for (AllocatorJob& job : cluster.jobs) job = on(job, before.at(job.info.name).nodes);
    const JobDecisions decisions = allocator.cycle(cluster).jobs;
    for (const auto& [name, decision] : decisions) CHECK(decision.nodes == before.at(name).nodes);
    before = decisions;
  }
}

}  // namespace operator_allocator_test
