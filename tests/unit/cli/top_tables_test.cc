#include "view/top_tables.h"

#include <doctest/doctest.h>

#include "policy/base/speedup.h"

namespace top_tables_test {

using namespace adaptdl;
using nlohmann::json;

namespace {

sched::NodeFacts make_node(const std::string& name, int gpus) {
  sched::NodeFacts node{.name = name};
  node.allocatable = {{"cpu", 4000}, {"pods", 110}};
  if (gpus > 0) node.allocatable["nvidia.com/gpu"] = gpus;
  node.ready = true;
  node.taints = json::array();
  return node;
}

sched::AllocatorJob make_job(const std::string& name, const sched::Allocation& nodes, int gpus = 1) {
  sched::AllocatorJob job;
  job.info.name = name;
  job.info.resources = {{"cpu", 500}, {"pods", 1}};
  if (gpus > 0) job.info.resources["nvidia.com/gpu"] = gpus;
  job.current = nodes;
  for (const std::string& node : nodes) {
    ++job.live[node];
    for (const auto& [resource, amount] : job.info.resources) job.requests[node][resource] += amount;
  }
  return job;
}

}  // namespace

TEST_CASE("nodes are listed with state, GPUs and jobs, and jobs with their allocation") {
  sched::AllocatorCluster cluster;
  cluster.nodes = {make_node("d", 4), make_node("c", 4), make_node("b", 4), make_node("a", 8)};
  cluster.nodes[2].leaving = "taint x";
  cluster.nodes[1].taints = {{{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}}};
  cluster.nodes[0].ready = false;
  cluster.jobs = {make_job("ns/two", {"a"}), make_job("ns/one", {"a", "a", "b"}, 2), make_job("ns/waits", {})};
  cluster.used["a"] = {{"nvidia.com/gpu", 1}};
  CHECK(cli::nodes_table(cluster).render() ==
        "NODE  STATE      GPUS  JOBS\n"
        "a     ready       6/8  ns/one 2, ns/two 1, others 1\n"
        "b     leaving     2/4  ns/one 1\n"
        "c     cordoned    0/4  -\n"
        "d     not ready   0/4  -\n");
  CHECK(cli::jobs_on_nodes_table(cluster).render() ==
        "JOB     REPLICAS  NODES  GPUS  GOODPUT\n"
        "ns/one         3      2     6        -\n"
        "ns/two         1      1     1        -\n");
  const json top = cli::top_json(cluster);
  CHECK(top["nodes"][1] == json::parse(R"({"name": "b", "state": "leaving", "why": "taint x", "pods": {"ns/one": 1},
    "allocatable": {"cpu": 4.0, "nvidia.com/gpu": 4, "pods": 110}, "used": {"cpu": 0.5, "nvidia.com/gpu": 2, "pods": 1}})"));
  CHECK(top["jobs"].size() == 2);
  CHECK(top["jobs"][0] == json::parse(R"({"name": "ns/one", "replicas": 3, "nodes": 2, "allocation": ["a", "a", "b"],
    "goodput": null})"));
}

TEST_CASE("without GPUs, CPUs are counted in cores") {
  sched::AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 0)};
  cluster.jobs = {make_job("ns/one", {"a"}, 0)};
  CHECK(cli::nodes_table(cluster).render() == "NODE  STATE   CPUS  JOBS\na     ready  0.5/4  ns/one 1\n");
}

TEST_CASE("the goodput of a measured job is predicted by its model for its allocation") {
  sched::AllocatorCluster cluster;
  cluster.nodes = {make_node("a", 4)};
  cluster.jobs = {make_job("ns/one", {"a", "a"})};
  const goodput::PerfParams perf{
      .alpha_c = 0.1, .beta_c = 0.01, .alpha_n = 0.1, .beta_n = 0.01, .alpha_r = 0.1, .beta_r = 0.01, .gamma = 1};
  const auto speedup = std::make_shared<sched::SpeedupFunction>(goodput::GoodputFunction(perf, {1, 100}, 64),
                                                                goodput::Limits{.max_batch_size = 64});
  cluster.jobs[0].info.speedup = speedup;
  CHECK(cli::top_json(cluster)["jobs"][0]["goodput"] == speedup->goodput(1, 2));
}

}  // namespace top_tables_test
