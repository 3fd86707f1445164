// Tests what the operator reads from the pods of replicas: whether they run, how they ended, and what keeps them from
// running.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kube/api/timestamp.h"
#include "operator/jobs/pod_facts.h"
#include "operator/jobs/replica_pod.h"

namespace operator_pod_facts_test {

using namespace adaptdl::sched;
using adaptdl::kube::parse_time;
using nlohmann::json;

namespace {

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

TEST_CASE("exit code 143 means that the program saved a checkpoint, even in a terminating pod") {
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

TEST_CASE("a pod is lost, not failed, if its node has lost track of a container") {
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
        "exited with code 1; its device 'GPU-1' (nvidia.com/gpu) is unhealthy: ECC errors");
  // While the program runs, the unhealthy device is only reported.
  status["state"] = {{"running", json::object()}};
  const PodFacts running = parse_pod(make_pod({{"phase", "Running"}, {"containerStatuses", {status}}}));
  CHECK(running.live());
  CHECK(running.message == "its device 'GPU-1' (nvidia.com/gpu) is unhealthy: ECC errors");
  status["allocatedResourcesStatus"] = "garbage";
  CHECK_FALSE(failed(status).unhealthy_device);
  // Exceeding a limit is a failure of the job itself.
  status = exited(137, "OOMKilled");
  CHECK_FALSE(with_health("Unhealthy").unhealthy_device);
  CHECK_FALSE(failed(status, "DeadlineExceeded").unhealthy_device);
}

TEST_CASE("a pod that exceeds the deadline in the job's template has failed") {
  CHECK(failed(exited(137), "DeadlineExceeded").end == PodEnd::kFailed);
}

TEST_CASE("a pod that its node rejects is lost, unless it exceeded its deadline") {
  CHECK(parse_pod(make_pod({{"phase", "Failed"}, {"reason", "NodePorts"}})).end == PodEnd::kLost);
  CHECK(parse_pod(make_pod({{"phase", "Failed"}, {"reason", "DeadlineExceeded"}})).end == PodEnd::kFailed);
}

TEST_CASE("a pod that exceeds a deadline has failed, even if the program exits with code 143") {
  CHECK(failed(exited(143), "DeadlineExceeded").end == PodEnd::kFailed);
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

}  // namespace operator_pod_facts_test
