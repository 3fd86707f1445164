// Tests what the operator expects of nodes that a pool does not have yet: their resources, devices, taints and price.
#include <doctest/doctest.h>

#include "operator_pool_support.h"

namespace operator_pool_new_nodes_test {

using namespace operator_pool_support;

TEST_CASE("an empty pool gets nodes for a job that fits on them") {
  AllocatorCluster cluster = make_cluster(0);
  SUBCASE("the resources of new nodes are unknown") {
    CHECK(desired(cluster) == 0);
    cluster.jobs = {make_job("a", 16)};
    const CycleDecisions decisions = cycle(cluster);
    CHECK(decisions.pool->desired_nodes == 1);
    CHECK(decisions.pool->reason == "the resources of new nodes are not known yet");
    CHECK(decisions.jobs.at("ns/a").placeable);
    CHECK(decisions.jobs.at("ns/a").reason == "waits: the cluster has no nodes; 1 new node requested");
    cluster.nodes = {make_node("other", "cpu", 0)};
    CHECK(desired(cluster) == 1);
    CHECK(cycle(cluster).jobs.at("ns/a").placeable);
  }
  SUBCASE("the resources of new nodes are known") {
    cluster.pool->node_resources = {{"nvidia.com/gpu", kGpus}};
    CHECK(desired(cluster) == 0);
    cluster.jobs = {make_job("a", 8, 6)};
    CHECK(desired(cluster) >= 2);
    cluster.nodes = {make_node("other", "cpu", 0)};
    CHECK(desired(cluster) >= 2);
    CHECK(cycle(cluster).jobs.at("ns/a").placeable);
    SUBCASE("the job does not fit on a new node") {
      cluster.jobs[0].info.resources["nvidia.com/gpu"] = kGpus + 1;
      CHECK(desired(cluster) == 0);
      CHECK_FALSE(cycle(cluster).jobs.at("ns/a").placeable);
    }
    SUBCASE("the job selects nodes with other labels") {
      cluster.jobs[0].pod = selecting("type", "other");
      CHECK(desired(cluster) == 0);
      CHECK_FALSE(cycle(cluster).jobs.at("ns/a").placeable);
    }
  }
}

TEST_CASE("the pool does not grow beyond its cost limit") {
  AllocatorCluster cluster = make_cluster(2);
  cluster.jobs = {make_job("a", 32)};
  cluster.pool->prices = {{{{"type", "pool"}}, 3}};
  CHECK(desired(cluster) > 4);
  cluster.pool->max_cost_per_hour = 11;
  const CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->desired_nodes == 3);
  CHECK(decisions.pool->reason.ends_with("; more nodes would cost more than 11 per hour"));
  cluster.pool->max_cost_per_hour = 5;
  CHECK(desired(cluster) == 1);
  cluster.pool->max_cost_per_hour = 1000;
  CHECK(desired(cluster) > 4);
  // The price of the first node is found by its labels, although its resources are unknown.
  cluster.nodes.clear();
  CHECK(desired(cluster) == 1);
  cluster = make_cluster(2);
  cluster.jobs = {make_job("a", 32)};
  cluster.pool->max_cost_per_hour = 0.6;
  cluster.pool->prices = {{{{"type", "pool"}}, 0.2}};
  CHECK(desired(cluster) == 3);
  // If the price of a new node is unknown, no node is added.
  cluster.pool->prices = {{{{"type", "other"}}, 3}};
  CHECK(desired(cluster) == 2);
  CHECK(cycle(cluster).pool->reason.ends_with("; the price of a new node is not known"));
}

TEST_CASE("a new node whose devices are not registered yet does not cause a request for another node") {
  AllocatorCluster cluster = make_cluster(2);
  cluster.nodes[1].allocatable.erase("nvidia.com/gpu");
  cluster.nodes[1].created = cluster.now - 30;
  cluster.jobs = {make_job("a", 6, 6)};
  CHECK(desired(cluster) == 2);
  // Once the node is old, only the resources that it reports count.
  cluster.nodes[1].created = 0;
  CHECK(desired(cluster) == 3);
}

TEST_CASE("the first node is kept while its devices may still appear, and no node is added for jobs that need them") {
  AllocatorCluster cluster = make_cluster(0);
  cluster.jobs = {make_job("a", 8), make_job("b", 8)};
  CHECK(desired(cluster) == 1);
  cluster.nodes = {make_node("first", "pool", 0)};
  cluster.nodes[0].created = cluster.now - 100;
  CycleDecisions decisions = cycle(cluster);
  CHECK(decisions.pool->desired_nodes == 1);
  CHECK(decisions.pool->surplus.empty());
  CHECK(decisions.pool->reason == "the resources of new nodes are not known yet");
  CHECK(waiting(decisions) == 2);
  // Nodes are still added for jobs that fit on nodes without these devices.
  for (const char* name : {"c", "d", "e"}) {
    cluster.jobs.push_back(make_job(name, 1, 1));
    cluster.jobs.back().info.resources = {{"pods", 60}};
  }
  CHECK(desired(cluster) > 1);
  // GPUs outside of the pool do not imply that nodes of the pool will get any.
  cluster.jobs.resize(2);
  cluster.nodes.push_back(make_node("other", "fixed"));
  CHECK(cycle(cluster).pool->new_node);
  cluster.nodes.pop_back();
  // After 15 minutes, the operator stops waiting for the devices of a new node.
  cluster.jobs = {make_job("a", 8), make_job("b", 8)};
  cluster.nodes[0].created = cluster.now - 1000;
  CHECK(desired(cluster) == 0);
  cluster.nodes = {make_node("first")};
  cluster.nodes[0].created = cluster.now - 100;
  CHECK(desired(cluster) == 4);
}

TEST_CASE("resources used by DaemonSets are not available on new nodes") {
  AllocatorCluster cluster = make_cluster(1);
  for (NodeFacts& node : cluster.nodes) node.allocatable["cpu"] = 4000;
  cluster.used["n0"] = {{"cpu", 500}, {"pods", 3}};
  cluster.jobs = {make_job("a", 1, 1)};
  cluster.jobs[0].info.resources["cpu"] = 3500;
  CHECK(desired(cluster) == 1);
  cluster.jobs[0].info.resources["cpu"] = 4000;
  CHECK(desired(cluster) == 0);
  // The resources of pods that will end soon count as free.
  cluster.released_soon["n0"] = {{"cpu", 500}};
  CHECK(desired(cluster) == 1);
  cluster.released_soon.clear();
  // DaemonSets are also considered if the resources of new nodes are configured.
  cluster.pool->node_resources = {{"cpu", 4000}, {"nvidia.com/gpu", kGpus}};
  CHECK(desired(cluster) == 0);
}

TEST_CASE("new nodes are expected to have the taints that placeholders tolerate") {
  AllocatorCluster cluster = make_cluster(0);
  cluster.pool->pod["spec"]["tolerations"] = {{{"key", "gpus"}, {"operator", "Exists"}}};
  cluster.jobs = {make_job("a", 1)};
  for (const Resources& resources : {Resources(), Resources{{"nvidia.com/gpu", kGpus}}}) {
    cluster.pool->node_resources = resources;
    cluster.jobs[0].pod = json::object();
    CHECK(desired(cluster) == 0);
    cluster.jobs[0].pod["spec"]["tolerations"] = cluster.pool->pod["spec"]["tolerations"];
    CHECK(desired(cluster) == 1);
    cluster.jobs[0].pod["spec"]["nodeSelector"] = {{"type", "other"}};
    CHECK(desired(cluster) == 0);
  }
}

}  // namespace operator_pool_new_nodes_test
