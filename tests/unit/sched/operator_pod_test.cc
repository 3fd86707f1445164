// Tests the creation of the pods of replicas, and that parsing such a pod returns which replica it is.
#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"
#include "operator/jobs/pod_facts.h"
#include "operator/jobs/replica_pod.h"

namespace operator_pod_test {

using namespace adaptdl::sched;
using adaptdl::kube::text_field;
using nlohmann::json;

namespace {

json make_job(const json& pod_template) {
  return {{"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", "1-2"}}}, {"spec", {{"template", pod_template}}}};
}

const json kTemplate = {
    {"metadata", {{"labels", {{"team", "x"}}}, {"generateName", "y"}}},
    {"spec",
     {{"containers", {{{"name", "main"}, {"image", "i"}, {"env", {{{"name", "A"}, {"value", "1"}}}}}}},
      {"nodeSelector", {{"zone", "z"}}}}}};
const PodPlace kPlace{.nodes = {"a", "a", "b"}, .group = 4, .rank = 2, .number = 2, .token = "secret"};

std::map<std::string, std::string> environment(const json& pod, std::size_t container = 0) {
  std::map<std::string, std::string> variables;  // as in Kubernetes, the last of several values wins
  for (const json& variable : pod["spec"]["containers"][container]["env"])
    variables[variable["name"]] = text_field(variable, {"value"});
  return variables;
}

}  // namespace

TEST_CASE("a replica's pod has the name, labels, owner and node that the contract requires") {
  const json pod = make_replica_pod(make_job(kTemplate), kPlace, {});
  const json& metadata = pod["metadata"];
  CHECK(metadata["name"] == "job-1-2-4-2");
  CHECK(metadata["namespace"] == "ns");
  CHECK_FALSE(metadata.contains("generateName"));
  CHECK(metadata["labels"] ==
        json({{"team", "x"}, {"adaptdl", "true"}, {"adaptdl/job", "job"}, {"petuum.com/nodegroup", "all"}}));
  CHECK(metadata["annotations"] == json({{"adaptdl/group", "4"},
                                         {"adaptdl/rank", "2"},
                                         {"adaptdl/replica", "2"},
                                         {"adaptdl/replicas", "3"},
                                         {"adaptdl/token", "secret"},
                                         {"adaptdl/node", "b"}}));
  REQUIRE(metadata["ownerReferences"].size() == 1);
  CHECK(metadata["ownerReferences"][0]["uid"] == "1-2");
  CHECK(metadata["ownerReferences"][0]["controller"] == true);
  CHECK(pod["spec"]["hostname"] == "job-4-2");
  CHECK(pod["spec"]["restartPolicy"] == "Never");
  CHECK(pod["spec"]["nodeSelector"] == json({{"zone", "z"}, {"kubernetes.io/hostname", "b"}}));
}

TEST_CASE("every container gets the replica's environment, which overrides the template") {
  json pod_template = kTemplate;
  pod_template["spec"]["containers"].push_back({{"name", "other"}});
  pod_template["spec"]["containers"][0]["env"].push_back({{"name", "ADAPTDL_REPLICA_RANK"}, {"value", "9"}});
  PodSettings settings;
  settings.supervisor_url = "http://s:8080";
  const json pod = make_replica_pod(make_job(pod_template), kPlace, settings);
  std::map<std::string, std::string> expected{{"ADAPTDL_JOB_ID", "ns/job"},
                                              {"ADAPTDL_MASTER_PORT", "47004"},
                                              {"ADAPTDL_NUM_NODES", "2"},
                                              {"ADAPTDL_NUM_REPLICAS", "3"},
                                              {"ADAPTDL_NUM_RESTARTS", "4"},
                                              {"ADAPTDL_REPLICA_RANK", "2"},
                                              {"ADAPTDL_SCHED_VERSION", "0.0.0"},
                                              {"ADAPTDL_SUPERVISOR_URL", "http://s:8080"},
                                              {"ADAPTDL_SUPERVISOR_TOKEN", "secret"},
                                              {"KUBEFLOW_TRAINER_SERVER_URL", "http://s:8080/kubeflow/ns/job"},
                                              {"KUBEFLOW_TRAINER_SERVER_TOKEN", "/var/run/secrets/adaptdl/token"}};
  CHECK(environment(pod, 1) == expected);
  expected["A"] = "1";
  CHECK(environment(pod) == expected);
  CHECK(parse_pod(pod).token == "secret");
}

TEST_CASE("a container keeps its own Kubeflow server URL") {
  json pod_template = kTemplate;
  pod_template["spec"]["containers"].push_back({{"name", "other"}});
  pod_template["spec"]["containers"][1]["env"] = {{{"name", "KUBEFLOW_TRAINER_SERVER_URL"}, {"value", "https://k"}}};
  const json pod = make_replica_pod(make_job(pod_template), kPlace, {});
  const auto variables = environment(pod, 1);
  CHECK(variables.at("KUBEFLOW_TRAINER_SERVER_URL") == "https://k");
  CHECK_FALSE(variables.contains("KUBEFLOW_TRAINER_SERVER_TOKEN"));
  CHECK(pod["spec"]["containers"][1]["volumeMounts"].size() == 1);
}

TEST_CASE("the master port is valid even for a huge group number") {
  PodPlace place = kPlace;
  place.group = 1'000'000'007;
  const int port = std::stoi(environment(make_replica_pod(make_job(kTemplate), place, {}))["ADAPTDL_MASTER_PORT"]);
  CHECK(port >= 47000);
  CHECK(port < 65536);
}

TEST_CASE("a joining replica is identified by its number and receives its first generation") {
  PodPlace place = kPlace;
  PodSettings settings;
  settings.live_rescale = true;
  json pod = make_replica_pod(make_job(kTemplate), place, settings);
  CHECK(environment(pod)["ADAPTDL_REPLICA_ID"] == "4-2");
  CHECK(environment(pod)["ADAPTDL_GENERATION"] == "0");
  place.number = 7;
  place.generation = 3;
  pod = make_replica_pod(make_job(kTemplate), place, settings);
  CHECK(adaptdl::kube::name_of(pod).ends_with("-4-7"));
  CHECK(pod["spec"]["hostname"].get<std::string>().ends_with("-4-7"));
  auto variables = environment(pod);
  CHECK(variables["ADAPTDL_REPLICA_ID"] == "4-7");
  CHECK(variables["ADAPTDL_GENERATION"] == "3");
  CHECK(variables["ADAPTDL_REPLICA_RANK"] == "2");
  CHECK(variables["ADAPTDL_NUM_REPLICAS"] == "3");
  const PodFacts facts = parse_pod(pod);
  CHECK(facts.number == 7);
  CHECK(facts.rank == 2);
  CHECK(master_port(4, 3) == 47007);
  CHECK(master_port(17999, 2) == 47001);
  CHECK(parse_replica_id("4-7")->number == 7);
  for (const char* wrong : {"", "4", "-7", "4-", "4-7-1", "a-b", "4--7"}) CHECK_FALSE(parse_replica_id(wrong));
}

TEST_CASE("containers get shared memory unless they mount their own") {
  json pod_template = kTemplate;
  pod_template["spec"]["containers"].push_back(
      {{"name", "other"}, {"volumeMounts", {{{"name", "mine"}, {"mountPath", "/dev/shm"}}}}});
  const json pod = make_replica_pod(make_job(pod_template), kPlace, {});
  const json token = {{"name", "adaptdl-token"}, {"mountPath", "/var/run/secrets/adaptdl"}, {"readOnly", true}};
  CHECK(pod["spec"]["containers"][0]["volumeMounts"] ==
        json::array({{{"name", "adaptdl-shm"}, {"mountPath", "/dev/shm"}}, token}));
  CHECK(pod["spec"]["containers"][1]["volumeMounts"].size() == 2);
  CHECK(pod["spec"]["volumes"] == json::parse(R"([
      {"name": "adaptdl-shm", "emptyDir": {"medium": "Memory"}},
      {"name": "adaptdl-token", "downwardAPI": {"items": [
          {"path": "token", "fieldRef": {"fieldPath": "metadata.annotations['adaptdl/token']"}}]}}])"));
}

TEST_CASE("default resources apply to what the first container does not specify") {
  PodSettings settings;
  settings.resources = {{"limits", {{"memory", 100}}}, {"requests", {{"memory", 200}}}};
  const auto resources = [&](const json& own, std::size_t container = 0) {
    json pod_template = kTemplate;
    pod_template["spec"]["containers"].push_back({{"name", "sidecar"}});
    if (!own.is_null()) pod_template["spec"]["containers"][0]["resources"] = own;
    return make_replica_pod(make_job(pod_template), kPlace, settings)["spec"]["containers"][container].value(
        "resources", json());
  };
  CHECK(resources({}) == settings.resources);
  CHECK(resources(json::object()) == settings.resources);
  CHECK(resources({{"limits", {{"memory", 300}}}}) ==
        json({{"limits", {{"memory", 300}}}, {"requests", {{"memory", 200}}}}));
  CHECK(resources({{"limits", {{"gpu", 1}}}})["limits"] == json({{"gpu", 1}, {"memory", 100}}));
  CHECK(resources({}, 1) == json());
  // Defaults are left out if a request would exceed its limit.
  CHECK(resources({{"limits", {{"memory", "150"}}}}) == json({{"limits", {{"memory", "150"}}}}));
  CHECK(resources({{"requests", {{"memory", "0.2k"}}}, {"limits", nullptr}}) ==
        json({{"requests", {{"memory", "0.2k"}}}}));
  // The request for an extended resource must equal its limit.
  settings.resources = {{"limits", {{"gpu", 1}}}, {"requests", {{"gpu", 1}}}, {"claims", {{{"name", "x"}}}}};
  CHECK(resources({}) == settings.resources);
  CHECK(resources({{"limits", {{"gpu", 2}}}}) == json({{"limits", {{"gpu", 2}}}, {"claims", {{{"name", "x"}}}}}));
  settings.resources = {{"requests", {{"memory", 200}}}};
  CHECK(resources({{"limits", {{"memory", 300}}}}) ==
        json({{"limits", {{"memory", 300}}}, {"requests", {{"memory", 200}}}}));
  settings.resources = {{"limits", {{"memory", 200}}}};
  CHECK(resources({{"limits", {{"memory", 300}}}}) == json({{"limits", {{"memory", 300}}}}));
  CHECK(resources(7) == 7);  // left to the API server, which rejects it
}

TEST_CASE("pod and container patches are applied last") {
  json pod_template = kTemplate;
  pod_template["spec"]["containers"].push_back({{"name", "own"}});
  PodSettings settings;
  settings.resources = {{"requests", {{"cpu", "2"}}}};
  settings.container_patch = {{"imagePullPolicy", "Always"}, {"resources", {{"requests", {{"cpu", "3"}}}}}};
  settings.pod_patch = json::array({{{"op", "add"}, {"path", "/spec/priorityClassName"}, {"value", "high"}}});
  const json pod = make_replica_pod(make_job(pod_template), kPlace, settings);
  for (const json& container : pod["spec"]["containers"]) {
    CHECK(container["imagePullPolicy"] == "Always");
    CHECK(container["resources"]["requests"]["cpu"] == "3");
  }
  CHECK(pod["spec"]["priorityClassName"] == "high");
  settings.pod_patch = json::array({{{"op", "remove"}, {"path", "/spec/nothing"}}});
  CHECK_THROWS_AS(make_replica_pod(make_job(kTemplate), kPlace, settings), adaptdl::Error);
}

TEST_CASE("an invalid template still yields a pod that the API server can reject") {
  for (const json& odd : std::vector<json>{
           json(),
           7,
           json::object(),
           {{"metadata", 1}, {"spec", "x"}},
           {{"spec", {{"containers", {1, nullptr, {}}}, {"volumes", 3}}}},
           {{"spec",
             {{"nodeSelector", "x"}, {"containers", {{{"env", 1}, {"volumeMounts", "y"}, {"resources", 2}}}}}}}}) {
    CAPTURE(odd);
    PodSettings settings;
    settings.resources = {{"requests", {{"cpu", "2"}}}};
    const json pod = make_replica_pod(make_job(odd), kPlace, settings);
    CHECK(pod["metadata"]["name"] == "job-1-2-4-2");
    CHECK(pod["spec"]["nodeSelector"] == json({{"kubernetes.io/hostname", "b"}}));
  }
}

TEST_CASE("parsing a replica's pod returns its number, rank and group") {
  const PodFacts facts = parse_pod(make_replica_pod(make_job(kTemplate), kPlace, {}));
  CHECK(facts.number == 2);
  // A replica keeps its number when its rank changes.
  json moved = make_replica_pod(make_job(kTemplate), kPlace, {});
  moved["metadata"]["annotations"][kRankAnnotation] = "1";
  CHECK(parse_pod(moved).number == 2);
  CHECK(parse_pod(moved).rank == 1);
  CHECK(facts.replicas == 3);
  CHECK(facts.group == 4);
  CHECK(facts.rank == 2);
  CHECK(facts.live());
  CHECK_FALSE(facts.running);
  CHECK_FALSE(facts.leaving);
}

TEST_CASE("the node selector uses the node's host name if it differs from the node's name") {
  PodPlace place = kPlace;
  place.hostname = "ip-10-0-0-1";
  const json pod = make_replica_pod(make_job(kTemplate), place, {});
  CHECK(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "ip-10-0-0-1");
  CHECK(pod["metadata"]["annotations"]["adaptdl/node"] == "b");
}

}  // namespace operator_pod_test
