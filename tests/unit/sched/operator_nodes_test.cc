#include <doctest/doctest.h>

#include "golden.h"
#include "operator/nodes/node_facts.h"

namespace operator_nodes_test {

using namespace adaptdl::sched;
using nlohmann::json;

namespace {

json make_node(const json& spec = json::object()) {
  return {
      {"metadata", {{"name", "a"}, {"labels", {{"zone", "z1"}, {"size", "16"}, {"nvidia.com/gpu.product", "H100"}}}}},
      {"spec", spec},
      {"status",
       {{"allocatable", {{"cpu", "7900m"}, {"memory", "31Gi"}, {"nvidia.com/gpu", "8"}, {"pods", "110"}}},
        {"conditions", {{{"type", "DiskPressure"}, {"status", "False"}}, {{"type", "Ready"}, {"status", "True"}}}}}}};
}

json tainted(const std::string& effect, const std::string& value = "") {
  json taint{{"key", "dedicated"}, {"effect", effect}};
  if (!value.empty()) taint["value"] = value;
  return make_node({{"taints", {taint}}});
}

json selecting(const json& terms) {
  return {
      {"spec",
       {{"affinity",
         {{"nodeAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", terms}}}}}}}}}};
}

bool selects(const std::string& key, const std::string& op, const json& values = json::array()) {
  const json requirement{{"key", key}, {"operator", op}, {"values", values}};
  return may_run(selecting({{{"matchExpressions", {requirement}}}}), parse_node(make_node()));
}

bool tolerates(const json& toleration, const json& node) {
  return may_run({{"spec", {{"tolerations", {toleration}}}}}, parse_node(node));
}

json container(const json& resources) { return {{"name", "c"}, {"resources", resources}}; }

}  // namespace

TEST_CASE("a node's resources are in millicores of CPU and whole units of other resources, rounded down") {
  const NodeFacts node = parse_node(make_node());
  CHECK(node.name == "a");
  CHECK(node.gpu_type == "H100");
  CHECK(node.ready);
  CHECK(node.allocatable == Resources{{"cpu", 7900}, {"memory", 31ll << 30}, {"nvidia.com/gpu", 8}, {"pods", 110}});
  json odd = make_node();
  odd["status"]["allocatable"] = {{"memory", "1500m"}, {"cpu", 2}, {"x", "none"}, {"y", nullptr}};
  const Resources amounts = parse_node(odd).allocatable;
  CHECK(amounts.at("memory") == 1);
  CHECK(amounts.at("cpu") == 2000);
  CHECK(amounts.at("x") == 0);
  CHECK(amounts.at("y") == 0);
}

TEST_CASE("huge resource amounts of a node do not overflow") {
  json node = make_node();
  for (const char* amount : {"9223372036854775807", "10E", "8e28"}) {
    CAPTURE(amount);
    node["status"]["allocatable"] = {{"memory", amount}, {"cpu", amount}};
    const Resources amounts = parse_node(node).allocatable;
    CHECK(amounts.at("memory") > (1ll << 50));
    CHECK(amounts.at("cpu") > (1ll << 50));
  }
}

TEST_CASE("a node is ready only if its condition Ready is True") {
  json node = make_node();
  for (const char* status : {"False", "Unknown"}) {
    node["status"]["conditions"][1]["status"] = status;
    CHECK_FALSE(parse_node(node).ready);
    CHECK_FALSE(may_run(json::object(), parse_node(node)));
  }
  node["status"].erase("conditions");
  CHECK_FALSE(parse_node(node).ready);
}

TEST_CASE("a pod requests the sum of its containers or its largest init container, whichever is larger") {
  const json pod{
      {"spec",
       {{"containers",
         {container({{"requests", {{"cpu", "500m"}, {"memory", "1Gi"}}}, {"limits", {{"memory", "4Gi"}}}}),
          container({{"limits", {{"cpu", "1"}, {"nvidia.com/gpu", 2}}}})}},
        {"initContainers",
         {container({{"requests", {{"cpu", "4"}, {"memory", "1Ki"}}}}), container({{"requests", {{"cpu", "3"}}}})}},
        {"overhead", {{"memory", "1Mi"}}}}}};
  CHECK(pod_requests(pod) ==
        Resources{{"cpu", 4000}, {"memory", (1ll << 30) + (1 << 20)}, {"nvidia.com/gpu", 2}, {"pods", 1}});
}

TEST_CASE("sidecars count as containers and add to the requests of later init containers") {
  json sidecar = container({{"requests", {{"cpu", "1"}}}});
  sidecar["restartPolicy"] = "Always";
  const json last = container({{"requests", {{"cpu", "4"}}}}), first = container({{"requests", {{"cpu", "5"}}}});
  json pod{
      {"spec", {{"containers", {container({{"requests", {{"cpu", "2"}}}})}}, {"initContainers", {first, sidecar}}}}};
  CHECK(pod_requests(pod).at("cpu") == 5000);
  pod["spec"]["initContainers"] = json::array({sidecar});
  CHECK(pod_requests(pod).at("cpu") == 3000);
  pod["spec"]["initContainers"] = {sidecar, last};
  CHECK(pod_requests(pod).at("cpu") == 5000);
}

TEST_CASE("could_run ignores cordons and readiness, but not other taints") {
  NodeFacts node{.name = "a",
                 .gpu_type = "",
                 .allocatable = {},
                 .ready = false,
                 .labels = json::object(),
                 .taints = json::array()};
  node.taints.push_back({{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}});
  CHECK_FALSE(may_run(json::object(), node));
  CHECK(could_run(json::object(), node));
  node.taints.push_back({{"key", "dedicated"}, {"effect", "NoSchedule"}});
  CHECK_FALSE(could_run(json::object(), node));
}

TEST_CASE("huge requests of a pod do not overflow") {
  json pod{{"spec", {{"containers", json::array()}}}};
  for (int i = 0; i < 100; ++i) pod["spec"]["containers"].push_back(container({{"limits", {{"gpu", "8e28"}}}}));
  CHECK(pod_requests(pod).at("gpu") > (1ll << 50));
}

TEST_CASE("requests are rounded up, and a pod without requests counts as one pod") {
  const json pod{{"spec", {{"containers", {container({{"requests", {{"cpu", "0.1m"}, {"memory", "100m"}}}})}}}}};
  CHECK(pod_requests(pod) == Resources{{"cpu", 1}, {"memory", 1}, {"pods", 1}});
  CHECK(pod_requests(json()) == Resources{{"pods", 1}});
}

// These cases are from the published Python scheduler's tests (petuum/adaptdl, sched/adaptdl_sched/resources_test.py).
TEST_CASE("as in petuum/adaptdl, amounts are integer multiples of a resource's smallest unit, rounded up") {
  const auto amount = [](const char* name, const json& value) {
    return pod_requests({{"spec", {{"containers", {container({{"requests", {{name, value}}}})}}}}}).at(name);
  };
  CHECK(amount("cpu", "10k") == 10'000'000);
  CHECK(amount("cpu", "100m") == 100);
  CHECK(amount("cpu", 1000) == 1'000'000);
  CHECK(amount("cpu", "1M") == 1'000'000'000);
  CHECK(amount("cpu", "1.37m") == 2);
  CHECK(amount("memory", "1T") == 1'000'000'000'000);
  CHECK(amount("memory", "1Gi") == 1 << 30);
  CHECK(amount("memory", "10e3") == 10'000);
  const json pod{
      {"spec",
       {{"containers",
         {container(
              {{"requests", {{"memory", 100}, {"cpu", 1.5}}}, {"limits", {{"memory", 80}, {"cpu", 1}, {"cows", 2}}}}),
          container(
              {{"requests", {{"memory", 120}, {"cpu", 2.5}}}, {"limits", {{"memory", 100}, {"cpu", 2}, {"cows", 5}}}}),
          container({{"requests", {{"memory", 250}, {"cpu", 10}}}, {"limits", {{"memory", 250}, {"cpu", 10}}}})}}}}};
  CHECK(pod_requests(pod) == Resources{{"cpu", 14'000}, {"memory", 470}, {"cows", 7}, {"pods", 1}});
}

TEST_CASE("pods may not run on nodes with taints that they do not tolerate") {
  for (const char* effect : {"NoSchedule", "NoExecute"}) CHECK_FALSE(tolerates(json::object(), tainted(effect)));
  CHECK(tolerates(json::object(), tainted("PreferNoSchedule")));
  CHECK(tolerates({{"operator", "Exists"}}, tainted("NoExecute", "x")));
  CHECK(tolerates({{"key", "dedicated"}, {"operator", "Exists"}}, tainted("NoSchedule", "x")));
  CHECK_FALSE(tolerates({{"key", "other"}, {"operator", "Exists"}}, tainted("NoSchedule", "x")));
  CHECK(tolerates({{"key", "dedicated"}, {"value", "x"}}, tainted("NoSchedule", "x")));
  CHECK(tolerates({{"key", "dedicated"}, {"operator", "Equal"}, {"value", "x"}}, tainted("NoSchedule", "x")));
  CHECK_FALSE(tolerates({{"key", "dedicated"}, {"value", "y"}}, tainted("NoSchedule", "x")));
  CHECK(tolerates({{"key", "dedicated"}}, tainted("NoSchedule")));
  CHECK_FALSE(tolerates({{"key", "dedicated"}, {"effect", "NoExecute"}}, tainted("NoSchedule")));
  json two = tainted("NoSchedule");
  two["spec"]["taints"].push_back({{"key", "other"}, {"effect", "NoSchedule"}});
  CHECK_FALSE(tolerates({{"key", "dedicated"}}, two));
}

TEST_CASE("a cordoned node accepts only pods that tolerate the cordon, with or without its taint") {
  const json tolerate{{"key", "node.kubernetes.io/unschedulable"}, {"operator", "Exists"}};
  json node = make_node({{"unschedulable", true}});
  CHECK_FALSE(tolerates(json::object(), node));
  CHECK(tolerates(tolerate, node));
  node["spec"]["taints"] = {{{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}}};
  CHECK(parse_node(node).taints.size() == 1);
  CHECK(tolerates(tolerate, node));
  CHECK_FALSE(accepts_pods(parse_node(node)));
}

TEST_CASE("a node that is about to be removed accepts no pods, regardless of their tolerations") {
  const auto sign = [](const json& node) {
    const NodeFacts facts = parse_node(node);
    CHECK(facts.ready);
    CHECK(tolerates({{"operator", "Exists"}}, node) == facts.leaving.empty());
    CHECK(accepts_pods(facts) == facts.leaving.empty());
    return facts.leaving;
  };
  for (const char* key :
       {"aws-node-termination-handler/spot-itn", "aws-node-termination-handler/scheduled-maintenance",
        "cloud.google.com/impending-node-termination", "karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"}) {
    CHECK(sign(make_node({{"taints", {{{"key", key}, {"effect", "NoSchedule"}}}}})) == std::string("taint ") + key);
  }
  for (const char* key : {"DeletionCandidateOfClusterAutoscaler", "aws-node-termination-handler", "karpenter.sh/other"})
    CHECK(sign(make_node({{"taints", {{{"key", key}, {"effect", "PreferNoSchedule"}}}}})) == "");
  json node = make_node();
  node["status"]["conditions"].push_back({{"type", "VMEventScheduled"}, {"status", "True"}, {"reason", "Preempt"}});
  CHECK(sign(node) == "");
  node["status"]["conditions"][2]["reason"] = "PreemptScheduled";
  CHECK(sign(node) == "condition PreemptScheduled");
  node["status"]["conditions"][2]["status"] = "False";
  CHECK(sign(node) == "");
  node["metadata"]["deletionTimestamp"] = "2026-11-21T12:10:00Z";
  CHECK_GOLDEN(sign(node));
}

TEST_CASE("could_run ignores that a node is about to be removed, but may_run does not") {
  NodeFacts node = parse_node(make_node({{"taints", {{{"key", "karpenter.sh/disrupted"}, {"effect", "NoSchedule"}}}}}));
  CHECK(could_run(json::object(), node));
  CHECK_FALSE(may_run(json::object(), node));
}

TEST_CASE("the signs that a node is about to be removed are configurable") {
  const json node = tainted("NoSchedule");
  CHECK(parse_node(node, {.taints = {"dedicated"}, .conditions = {}}).leaving == "taint dedicated");
  CHECK(parse_node(node, {.taints = {"dedicate", ""}, .conditions = {"Ready"}}).leaving == "condition Ready");
  CHECK(parse_node(node, {.taints = {}, .conditions = {""}}).leaving == "");
}

TEST_CASE("a node selector matches only nodes with all of its labels") {
  const auto matches = [](const json& selector) {
    return may_run({{"spec", {{"nodeSelector", selector}}}}, parse_node(make_node()));
  };
  CHECK(matches({{"zone", "z1"}}));
  CHECK_FALSE(matches({{"zone", "z1"}, {"size", "8"}}));
  CHECK_FALSE(matches({{"none", ""}}));
  CHECK(matches(json()));
}

TEST_CASE("node affinity supports all operators") {
  CHECK(selects("zone", "In", {"z0", "z1"}));
  CHECK_FALSE(selects("zone", "In", {"z0"}));
  CHECK_FALSE(selects("none", "In", {""}));
  CHECK(selects("zone", "NotIn", {"z0"}));
  CHECK_FALSE(selects("zone", "NotIn", {"z1"}));
  CHECK(selects("none", "NotIn", {"z1"}));
  CHECK(selects("zone", "Exists"));
  CHECK_FALSE(selects("none", "Exists"));
  CHECK(selects("none", "DoesNotExist"));
  CHECK_FALSE(selects("zone", "DoesNotExist"));
  CHECK(selects("size", "Gt", {"15"}));
  CHECK_FALSE(selects("size", "Gt", {"16"}));
  CHECK(selects("size", "Lt", {"17"}));
  CHECK_FALSE(selects("zone", "Lt", {"17"}));
  CHECK_FALSE(selects("none", "Gt", {"1"}));
  CHECK_FALSE(selects("size", "Gt"));
  CHECK_FALSE(selects("size", "Like", {"1"}));
}

TEST_CASE("node affinity requires one term whose expressions and fields all match") {
  const NodeFacts node = parse_node(make_node());
  const json yes{{"key", "zone"}, {"operator", "Exists"}}, no{{"key", "none"}, {"operator", "Exists"}};
  CHECK(may_run(selecting({{{"matchExpressions", {no}}}, {{"matchExpressions", {yes}}}}), node));
  CHECK_FALSE(may_run(selecting({{{"matchExpressions", {yes, no}}}}), node));
  CHECK_FALSE(may_run(selecting(json::array({json::object()})), node));
  CHECK_FALSE(may_run(selecting(json::array()), node));
  const auto by_name = [](const char* name) {
    const json requirement{{"key", "metadata.name"}, {"operator", "In"}, {"values", json::array({name})}};
    return json{{"matchFields", json::array({requirement})}};
  };
  CHECK(may_run(selecting(json::array({by_name("a")})), node));
  CHECK_FALSE(may_run(selecting(json::array({by_name("b")})), node));
}

TEST_CASE("subtraction stops at 0 and ignores resources that are not listed") {
  Resources free{{"cpu", 1000}, {"pods", 2}};
  subtract(free, {{"cpu", 300}, {"gpu", 1}}, 2);
  CHECK(free == Resources{{"cpu", 400}, {"pods", 2}});
  subtract(free, {{"pods", 1}}, 5);
  CHECK(free == Resources{{"cpu", 400}, {"pods", 0}});
}

TEST_CASE("parsing tolerates nodes and pods with missing or invalid fields") {
  for (const json& odd : std::vector<json>{json(),
                                           7,
                                           json::array(),
                                           {{"metadata", 3}, {"spec", "x"}, {"status", {1}}},
                                           {{"metadata", {{"labels", {1}}}},
                                            {"spec", {{"taints", {1, nullptr}}}},
                                            {"status", {{"conditions", {1}}}}}}) {
    CAPTURE(odd);
    CHECK_FALSE(may_run(json::object(), parse_node(odd)));
    CHECK(pod_requests(odd).at("pods") == 1);
    CHECK_NOTHROW(may_run(odd, parse_node(make_node())));
  }
}

}  // namespace operator_nodes_test
