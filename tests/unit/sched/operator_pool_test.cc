// Tests how many nodes the operator requests from a cluster autoscaler, and how this affects jobs.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>

#include "golden.h"
#include "operator_pool_support.h"

namespace operator_pool_test {

using namespace operator_pool_support;

namespace {

std::set<std::string> nodes_of(const CycleDecisions& decisions) {
  std::set<std::string> nodes;
  for (const auto& [name, decision] : decisions.jobs) nodes.insert(decision.nodes.begin(), decision.nodes.end());
  return nodes;
}

// Simulates what an autoscaler and the operator do until the next cycle: nodes are added, surplus nodes are removed,
// and jobs move.
void follow(AllocatorCluster& cluster, const CycleDecisions& decisions, int& added) {
  for (AllocatorJob& job : cluster.jobs) {
    if (const auto found = decisions.jobs.find(job.info.name); found != decisions.jobs.end())
      job = on(job, found->second.nodes, job.info.preemptible);
  }
  const PoolDecision& pool = decisions.pool.value();
  std::erase_if(cluster.nodes, [&](const NodeFacts& node) { return pool.surplus.contains(node.name); });
  for (int i = pool.nodes; i < pool.desired_nodes; ++i)
    cluster.nodes.push_back(make_node("added" + std::to_string(added++)));
}

}  // namespace

TEST_CASE("without jobs, the pool shrinks to its minimum size") {
  AllocatorCluster cluster = make_cluster(3);
  CHECK(desired(cluster) == 0);
  cluster.pool->min_nodes = 2;
  CHECK(desired(cluster) == 2);
  CHECK(cycle(cluster).pool->surplus.size() == 1);
}

TEST_CASE("nodes are added to the pool while jobs make good use of them, up to its maximum size") {
  AllocatorCluster cluster = make_cluster(1);
  cluster.jobs = {make_job("a", 8), make_job("b", 8)};
  CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->desired_nodes == 4);
  CHECK_GOLDEN(decisions.pool->reason);
  cluster.pool->max_nodes = 2;
  CHECK(desired(cluster) == 2);
  // If there are more nodes than the maximum, those that no job uses are surplus.
  cluster = make_cluster(4);
  cluster.pool->max_nodes = 2;
  cluster.jobs = {on(make_job("a", 8), {"n2", "n2", "n3"})};
  decisions = cycle(cluster);
  CHECK(decisions.pool->desired_nodes == 2);
  CHECK(decisions.pool->surplus == std::set<std::string>{"n0", "n1"});
  CHECK(nodes_of(decisions) == std::set<std::string>{"n2", "n3"});
}

TEST_CASE("poorly used nodes of the pool are surplus, and jobs move off them") {
  AllocatorCluster cluster = make_cluster(4);
  cluster.jobs = {on(make_job("a", 1), {"n1"}), on(make_job("b", 1), {"n3"})};
  const CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->desired_nodes == 1);
  CHECK(decisions.pool->surplus.size() == 3);
  CHECK(nodes_of(decisions).size() == 1);
  for (const auto& [name, decision] : decisions.jobs) CHECK(decision.nodes.size() == 1);
}

TEST_CASE("a pinned job keeps its node in the pool, and other jobs move to that node") {
  AllocatorCluster cluster = make_cluster(4);
  cluster.jobs = {on(make_job("a", 1), {"n1"}), on(make_job("b", 1), {"n3"}, false)};
  const CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->desired_nodes == 1);
  CHECK(decisions.pool->surplus == std::set<std::string>{"n0", "n1", "n2"});
  CHECK(decisions.jobs.at("ns/a").nodes == Allocation{"n3"});
  CHECK_FALSE(decisions.jobs.contains("ns/b"));
}

TEST_CASE("the pool is large enough for each job's minimum number of replicas") {
  AllocatorCluster cluster = make_cluster(1);
  cluster.jobs = {make_job("small", 1), make_job("large", 12, 9)};
  const CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->desired_nodes >= 3);
  const JobDecision& large = decisions.jobs.at("ns/large");
  CHECK(large.nodes.empty());
  CHECK(large.placeable);
  CHECK_GOLDEN(large.reason);
  SUBCASE("the pool's maximum is too small") {
    cluster.pool->max_nodes = 2;
    CHECK(desired(cluster) <= 2);
    CHECK_FALSE(cycle(cluster).jobs.at("ns/large").placeable);
  }
}

TEST_CASE("nodes outside the pool are used first, and are never counted or surplus") {
  AllocatorCluster cluster = make_cluster(1);
  cluster.nodes.push_back(make_node("fixed", "fixed"));
  cluster.jobs = {on(make_job("a", 2), {"fixed", "fixed"})};
  const CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->nodes == 1);
  CHECK(decisions.pool->desired_nodes == 0);
  CHECK(decisions.pool->surplus == std::set<std::string>{"n0"});
  CHECK(nodes_of(decisions) == std::set<std::string>{"fixed"});
}

TEST_CASE("the only node that a job may use is never surplus") {
  AllocatorCluster cluster = make_cluster(3);
  cluster.nodes[2].labels["zone"] = "z";
  cluster.jobs = {on(make_job("a", 1), {"n0"}), make_job("zoned", 1)};
  cluster.jobs[1].pod = selecting("zone", "z");
  const CycleDecisions decisions = cycle(cluster);
  CHECK_FALSE(decisions.pool->surplus.contains("n2"));
  CHECK(decisions.jobs.at("ns/zoned").nodes == Allocation{"n2"});
  CHECK(decisions.pool->desired_nodes == 2);
}

TEST_CASE("nodes that are not ready, cordoned or about to be removed are not counted") {
  AllocatorCluster cluster = make_cluster(4);
  cluster.nodes[0].ready = false;
  cluster.nodes[1].taints.push_back({{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}});
  cluster.nodes[2].leaving = "taint gone";
  cluster.jobs = {make_job("a", 2)};
  const CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->nodes == 1);
  CHECK(decisions.pool->desired_nodes == 1);
  CHECK(decisions.pool->surplus.empty());
}

TEST_CASE("a node that no job would use is not added, even if all others are fully used") {
  AllocatorCluster cluster = make_cluster(1);
  cluster.jobs = {on(make_job("a", kGpus), {"n0", "n0", "n0", "n0"})};
  CHECK(desired(cluster) == 1);
  cluster.jobs[0].info.preemptible = false;
  CHECK(desired(cluster) == 1);
  // Only the GPUs of the node outside of the pool are fully used, and nodes of the pool would have no GPUs.
  cluster = make_cluster(0);
  cluster.pool->node_resources = {{"cpu", 8000}};
  cluster.nodes = {make_node("fixed", "fixed")};
  cluster.jobs = {on(make_job("a", kGpus), {"fixed", "fixed", "fixed", "fixed"}), make_job("b", kGpus)};
  CHECK(desired(cluster) == 0);
}

TEST_CASE("resources of jobs that cannot be moved do not count as free") {
  AllocatorCluster cluster = make_cluster(1);
  SUBCASE("a job that is not preemptible") {
    cluster.jobs = {on(make_job("a", 1), {"n0"}, false), make_job("b", kGpus, kGpus)};
  }
  SUBCASE("a job that cannot use the pool, on a node that other jobs can use") {
    cluster.nodes = {make_node("fixed", "fixed")};
    cluster.pool->node_resources = {{"nvidia.com/gpu", kGpus}};
    cluster.jobs = {on(make_job("a", kGpus), {"fixed", "fixed", "fixed", "fixed"}), make_job("b", 1)};
    cluster.jobs[0].pod = selecting("type", "fixed");
  }
  CHECK(desired(cluster) >= 1 + static_cast<int>(cluster.nodes[0].name == "n0"));
}

TEST_CASE("a job restricted to some of the nodes gets enough of them for its minimum number of replicas") {
  AllocatorCluster cluster = make_cluster(6);
  for (const int node : {4, 5}) cluster.nodes[static_cast<std::size_t>(node)].labels["zone"] = "z";
  cluster.jobs = {make_job("a", 2 * kGpus, 2 * kGpus)};
  cluster.jobs[0].pod = selecting("zone", "z");
  const CycleDecisions decisions = cycle(cluster);
  CHECK(nodes_of(decisions) == std::set<std::string>{"n4", "n5"});
}

TEST_CASE("the last desired size is kept while surplus nodes are being removed") {
  AllocatorCluster cluster = make_cluster(4);
  cluster.jobs = {on(make_job("a", 2 * kGpus, 1), {"n0", "n0", "n0", "n0", "n1", "n1", "n1", "n1"})};
  const int wanted = desired(cluster);
  CHECK(wanted == 2);
  cluster.nodes.pop_back();
  cluster.pool->last_desired = wanted;
  CHECK(desired(cluster) == wanted);
}

TEST_CASE("new jobs start on nodes that are not surplus if there is room") {
  AllocatorCluster cluster = make_cluster(2);
  cluster.jobs = {make_job("a", 1), make_job("b", kGpus, kGpus)};
  for (AllocatorJob& job : cluster.jobs) job.waits_for_first_fit = true;
  cluster.surplus = {"n0"};
  const JobDecisions decisions = Allocator::first_fit(cluster);
  CHECK(decisions.at("ns/a").nodes == Allocation{"n1"});
  CHECK(decisions.at("ns/b").nodes == Allocation{"n0", "n0", "n0", "n0"});
}

TEST_CASE("only policies based on utility choose the size of the pool") {
  CHECK(Allocator(make_policy("adaptive", {})).chooses_size());
  CHECK(Allocator(make_policy("pollux-released", {})).chooses_size());
  for (const char* policy : {"pollux", "fifo", "tiresias", "optimus", "sia"})
    CHECK_FALSE(Allocator(make_policy(policy, {})).chooses_size());
}

namespace {

void check_histories(int count) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int history = 0; history < count; ++history) {
    CAPTURE(history);
    AllocatorCluster cluster = make_cluster(1 + below(3));
    cluster.pool->min_nodes = below(2);
    cluster.pool->max_nodes = 3 + below(6);
    cluster.pool->node_resources = {{"nvidia.com/gpu", kGpus}};
    int added = 0;
    for (int change = 0; change < 8; ++change) {
      cluster.jobs.clear();
      for (int i = below(5); i > 0; --i) {
        const int min = 1 + below(2 * kGpus);
        AllocatorJob job = make_job("job" + std::to_string(i), min + below(8), min);
        job.info.preemptible = below(4) != 0;
        cluster.jobs.push_back(job);
      }
      for (int round = 0; round < 5; ++round) {
        CAPTURE(change);
        CAPTURE(round);
        const CycleDecisions decisions = cycle(cluster);
        const PoolDecision& pool = decisions.pool.value();
        CHECK(pool.desired_nodes >= cluster.pool->min_nodes);
        CHECK(pool.desired_nodes <= cluster.pool->max_nodes);
        for (const std::string& node : nodes_of(decisions)) CHECK_FALSE(pool.surplus.contains(node));
        if (round >= 3) {
          // The size has settled, and more nodes would not help a waiting job.
          CHECK(pool.desired_nodes == pool.nodes);
          const bool idle = cluster.jobs.empty();
          CHECK((!idle || pool.nodes == cluster.pool->min_nodes));
          AllocatorCluster largest = cluster;
          largest.pool.reset();
          for (int i = pool.nodes; i < cluster.pool->max_nodes; ++i)
            largest.nodes.push_back(make_node("more" + std::to_string(i)));
          CHECK(waiting(decisions) <= waiting(cycle(largest)));
        }
        follow(cluster, decisions, added);
      }
    }
  }
}

}  // namespace

TEST_CASE("the size of the pool follows the load, settles, and stays within its limits") { check_histories(4); }

TEST_CASE("the size of the pool follows the load and stays within its limits in many histories" *
          doctest::test_suite("full")) {
  check_histories(100);
}

}  // namespace operator_pool_test
