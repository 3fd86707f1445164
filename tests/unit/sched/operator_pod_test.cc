// Tests the creation and the parsing of the pods of replicas.
#include <doctest/doctest.h>

#include <map>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"
#include "operator/jobs/pod_facts.h"
#include "operator/jobs/replica_pod.h"

namespace operator_pod_test {

using namespace adaptdl::sched;
using adaptdl::kube::field;
using adaptdl::kube::parse_time;
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

// Returns a pod of group 3 and rank 1 with this status.
json make_pod(const json& status) {
  return {{"metadata",
           {{"namespace", "ns"},
            {"name", "job-u-3-1"},
            {"uid", "p"},
            {"labels", {{"adaptdl", "true"}}},
            {"ownerReferences",
             {{{"apiVersion", "adaptdl.petuum.com/v1"}, {"kind", "AdaptDLJob"}, {"name", "job"}, {"uid", "u"}}}},
            {"annotations", {{kGroupAnnotation, "3"}, {kRankAnnotation, "1"}}}}},
          {"spec",
           {{"nodeName", "a"},
            {"containers", {{{"name", "main"}, {"env", {{{"name", kTokenVariable}, {"value", "secret"}}}}}}}}},
          {"status", status}};
}

json container_status(const json& state, bool ready = false) {
  return {{"name", "main"}, {"ready", ready}, {"restartCount", 0}, {"state", state}};
}

json exited(int code, const std::string& reason = "Error") {
  return container_status(
      {{"terminated", {{"exitCode", code}, {"reason", reason}, {"finishedAt", "2026-11-21T12:00:00Z"}}}});
}

PodFacts failed(const json& container, const std::string& reason = "", bool leaving = false) {
  json pod = make_pod({{"phase", "Failed"}, {"containerStatuses", {container}}});
  if (!reason.empty()) pod["status"]["reason"] = reason;
  if (leaving) pod["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z";
  return parse_pod(pod);
}

PodFacts waiting(const std::string& reason) {
  return parse_pod(
      make_pod({{"phase", "Pending"}, {"containerStatuses", {container_status({{"waiting", {{"reason", reason}}}})}}}));
}

PodFacts unscheduled(const std::string& message) {
  json pod = make_pod(
      {{"phase", "Pending"},
       {"conditions",
        {{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}, {"message", message}}}}});
  pod["spec"].erase("nodeName");
  return parse_pod(pod);
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

TEST_CASE("a joining replica is identified by its number and gets its first generation") {
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

TEST_CASE("default resources fill in what the first container does not specify") {
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
  // It keeps its number when its rank changes.
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

TEST_CASE("a pod is running only if all of its containers are running") {
  json status{{"phase", "Running"},
              {"podIP", "10.0.0.1"},
              {"containerStatuses", {container_status({{"running", json::object()}}, true)}}};
  CHECK(parse_pod(make_pod(status)).running);
  CHECK(parse_pod(make_pod(status)).ip == "10.0.0.1");
  status["containerStatuses"].push_back(container_status({{"waiting", json::object()}}));
  CHECK_FALSE(parse_pod(make_pod(status)).running);
  CHECK(parse_pod(make_pod(status)).live());
}

TEST_CASE("exit codes other than 0 and 143 are failures, with a reason and a time") {
  const PodFacts facts = failed(exited(1));
  CHECK(facts.end == PodEnd::kFailed);
  CHECK(facts.reason == "PodFailure");
  CHECK(facts.ended == parse_time("2026-11-21T12:00:00Z"));
  CHECK(failed(exited(137)).end == PodEnd::kFailed);
  CHECK(failed(exited(137, "OOMKilled")).reason == "OOMKilled");
  CHECK(failed(exited(137, "OOMKilled")).end == PodEnd::kFailed);
}

TEST_CASE("exit code 143 means checkpointed, even for a terminating pod") {
  CHECK(failed(exited(143)).end == PodEnd::kCheckpointed);
  CHECK(failed(exited(143), "", true).end == PodEnd::kCheckpointed);
}

TEST_CASE("exit code 143 of one container does not hide the failure of another") {
  json pod = make_pod({{"phase", "Failed"}, {"containerStatuses", {exited(143), exited(1)}}});
  CHECK(parse_pod(pod).end == PodEnd::kFailed);
  pod["status"]["containerStatuses"] = {exited(143), exited(0, "Completed")};
  CHECK(parse_pod(pod).end == PodEnd::kCheckpointed);
}

TEST_CASE("a pod that Kubernetes terminated is lost, regardless of its exit code") {
  for (const char* reason :
       {"Evicted", "NodeLost", "Preempting", "UnexpectedAdmissionError", "NodeAffinity", "Shutdown", "NodeShutdown",
        "Terminated", "OutOfcpu", "OutOfnvidia.com/gpu", "OutOfpods"}) {
    CAPTURE(reason);
    CHECK(failed(exited(137), reason).end == PodEnd::kLost);
    CHECK(parse_pod(make_pod({{"phase", "Failed"}, {"reason", reason}})).end == PodEnd::kLost);
  }
  json pod = make_pod({{"phase", "Failed"},
                       {"containerStatuses", {exited(1)}},
                       {"conditions", {{{"type", "DisruptionTarget"}, {"status", "True"}}}}});
  CHECK(parse_pod(pod).end == PodEnd::kLost);
  pod["status"]["conditions"][0]["status"] = "False";
  CHECK(parse_pod(pod).end == PodEnd::kFailed);
}

TEST_CASE("a terminating pod that exits with an error is lost, not failed") {
  CHECK(failed(exited(1), "", true).end == PodEnd::kLost);
  CHECK(failed(exited(137), "", true).end == PodEnd::kLost);
}

TEST_CASE("a container that its node has lost track of is lost, not failed") {
  // The kubelet and containerd report these reasons.
  CHECK(failed(exited(137, "ContainerStatusUnknown")).end == PodEnd::kLost);
  CHECK(failed(exited(255, "Unknown")).end == PodEnd::kLost);
  CHECK(failed(exited(255)).end == PodEnd::kFailed);
}

TEST_CASE("a failure on an unhealthy device is distinguished from other failures") {
  json status = exited(1);
  const auto with_health = [&](const char* health) {
    status["allocatedResourcesStatus"] = {
        {{"name", "cpu"}, {"resources", json::array()}},
        {{"name", "nvidia.com/gpu"},
         {"resources",
          {{{"resourceID", "GPU-0"}, {"health", "Healthy"}},
           {{"resourceID", "GPU-1"}, {"health", health}, {"message", "ECC errors"}}}}}};
    return failed(status);
  };
  CHECK_FALSE(with_health("Healthy").unhealthy_device);
  CHECK_FALSE(with_health("Unknown").unhealthy_device);
  CHECK(with_health("Unhealthy").unhealthy_device);
  CHECK(with_health("Unhealthy").end == PodEnd::kFailed);
  CHECK(with_health("Unhealthy").message ==
        "exited with code 1; its device GPU-1 (nvidia.com/gpu) is unhealthy: ECC errors");
  // While the program runs, the unhealthy device is only reported.
  status["state"] = {{"running", json::object()}};
  const PodFacts running = parse_pod(make_pod({{"phase", "Running"}, {"containerStatuses", {status}}}));
  CHECK(running.live());
  CHECK(running.message == "its device GPU-1 (nvidia.com/gpu) is unhealthy: ECC errors");
  status["allocatedResourcesStatus"] = "garbage";
  CHECK_FALSE(failed(status).unhealthy_device);
  // Exceeding a limit is a failure of the job itself.
  status = exited(137, "OOMKilled");
  CHECK_FALSE(with_health("Unhealthy").unhealthy_device);
  CHECK_FALSE(failed(status, "DeadlineExceeded").unhealthy_device);
}

TEST_CASE("exceeding the template's deadline is a failure") {
  CHECK(failed(exited(137), "DeadlineExceeded").end == PodEnd::kFailed);
}

TEST_CASE("a pod that its node rejects is lost, unless it exceeded its deadline") {
  CHECK(parse_pod(make_pod({{"phase", "Failed"}, {"reason", "NodePorts"}})).end == PodEnd::kLost);
  CHECK(parse_pod(make_pod({{"phase", "Failed"}, {"reason", "DeadlineExceeded"}})).end == PodEnd::kFailed);
}

TEST_CASE("exceeding a deadline is a failure even if the program exits with 143") {
  CHECK(failed(exited(143), "DeadlineExceeded").end == PodEnd::kFailed);
}

TEST_CASE("the node selector uses the node's host name if it differs from the node's name") {
  PodPlace place = kPlace;
  place.hostname = "ip-10-0-0-1";
  const json pod = make_replica_pod(make_job(kTemplate), place, {});
  CHECK(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "ip-10-0-0-1");
  CHECK(pod["metadata"]["annotations"]["adaptdl/node"] == "b");
}

TEST_CASE("a terminating pod can succeed") {
  json pod = make_pod({{"phase", "Succeeded"}});
  CHECK(parse_pod(pod).end == PodEnd::kSucceeded);
  pod["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z";
  CHECK(parse_pod(pod).end == PodEnd::kSucceeded);
}

TEST_CASE("a pod's end time is that of its last container, if all end times are known") {
  const adaptdl::kube::Time end = *parse_time("2026-11-21T12:00:00Z");
  json pod = make_pod({{"phase", "Failed"}, {"containerStatuses", {exited(1), exited(0)}}});
  json& states = pod["status"]["containerStatuses"];
  CHECK(parse_pod(pod).last_ended == end);
  // An init container failed, so the others never ran.
  pod["status"]["initContainerStatuses"] = {exited(1)};
  states[1] = container_status({{"waiting", {{"reason", "PodInitializing"}}}});
  CHECK(parse_pod(pod).last_ended == end);
  // The node did not report the end of the last container.
  states[1] = container_status({{"running", {{"startedAt", "2026-11-21T11:00:00Z"}}}});
  CHECK_FALSE(parse_pod(pod).last_ended);
  for (const json& finished : {json(), json("1970-01-01T00:00:00Z")}) {
    states[1] = exited(137, "ContainerStatusUnknown");
    states[1]["state"]["terminated"]["finishedAt"] = finished;
    CHECK_FALSE(parse_pod(pod).last_ended);
  }
  CHECK_FALSE(parse_pod(make_pod({{"phase", "Failed"}, {"reason", "Evicted"}})).last_ended);
}

TEST_CASE("a pod of unknown phase counts as live") {
  CHECK(parse_pod(make_pod({{"phase", "Unknown"}})).live());
  CHECK(parse_pod(make_pod(json::object())).live());
}

TEST_CASE("image, container, volume and scheduling problems are distinguished") {
  CHECK(waiting("ImagePullBackOff").trouble == PodTrouble::kImage);
  CHECK(waiting("InvalidImageName").trouble == PodTrouble::kImage);
  CHECK(waiting("CreateContainerConfigError").trouble == PodTrouble::kContainer);
  CHECK(waiting("ContainerCreating").trouble == PodTrouble::kNone);
  CHECK(unscheduled("0/2 nodes are available: 2 Insufficient cpu.").trouble == PodTrouble::kUnscheduled);
  CHECK(unscheduled("persistentvolumeclaim \"data\" not found").trouble == PodTrouble::kVolume);
  CHECK(unscheduled("0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims.").trouble ==
        PodTrouble::kVolume);
  CHECK_FALSE(unscheduled("0/2 nodes are available: 2 Insufficient cpu.").message.empty());
}

TEST_CASE("parsing tolerates pods with missing or invalid fields") {
  for (const json& odd :
       std::vector<json>{json(),
                         7,
                         json::array(),
                         {{"metadata", 3}, {"spec", "x"}, {"status", {1}}},
                         {{"metadata", {{"annotations", {{kGroupAnnotation, "-3"}, {kRankAnnotation, 1}}}}},
                          {"status",
                           {{"phase", "Failed"},
                            {"containerStatuses", {1, nullptr, {{"state", {{"terminated", 5}}}}}},
                            {"conditions", "x"}}}}}) {
    CAPTURE(odd);
    const PodFacts facts = parse_pod(odd);
    CHECK(facts.group == -1);
    CHECK(facts.rank == -1);
  }
}

}  // namespace operator_pod_test
