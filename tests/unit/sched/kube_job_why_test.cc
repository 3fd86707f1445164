#include "kube/jobs/job_why.h"

#include <doctest/doctest.h>

#include "golden.h"
#include "kube/jobs/job_index.h"

namespace kube_job_why_test {

using namespace adaptdl::kube;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

const Time kNow = *parse_time("2026-11-21T12:10:00Z");

json make_job(const json& status = json::object()) {
  return {
      {"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", "u"}, {"creationTimestamp", "2026-11-21T12:00:00Z"}}},
      {"spec", {{"maxReplicas", 2}}},
      {"status", status}};
}

json make_pod(int rank, const json& status, const std::string& node = "node0") {
  json pod = {
      {"metadata",
       {{"namespace", "ns"},
        {"name", "job-u-0-" + std::to_string(rank)},
        {"uid", "p" + std::to_string(rank)},
        {"labels", {{"adaptdl", "true"}, {"adaptdl/job", "job"}}},
        {"annotations", {{"adaptdl/group", "0"}, {"adaptdl/rank", std::to_string(rank)}, {"adaptdl/replicas", "2"}}}}},
      {"spec", {{"containers", {{{"name", "main"}, {"image", "registry.local/x:1"}}}}}},
      {"status", status}};
  if (!node.empty()) pod["spec"]["nodeName"] = node;
  return pod;
}

json waiting(const std::string& reason, const std::string& message = "") {
  json state = {{"reason", reason}};
  if (!message.empty()) state["message"] = message;
  return {{"phase", "Pending"},
          {"containerStatuses", {{{"name", "main"}, {"restartCount", 0}, {"state", {{"waiting", state}}}}}}};
}

json terminated(const json& how) {
  return {{"phase", "Failed"},
          {"containerStatuses", {{{"name", "main"}, {"restartCount", 0}, {"state", {{"terminated", how}}}}}}};
}

json running() {
  return {{"phase", "Running"},
          {"containerStatuses",
           {{{"name", "main"}, {"ready", true}, {"restartCount", 0}, {"state", {{"running", json::object()}}}}}}};
}

json unschedulable(const std::string& message) {
  return {{"phase", "Pending"},
          {"conditions",
           {{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}, {"message", message}}}}};
}

json make_event(const std::string& kind, const std::string& name, const std::string& reason,
                const std::string& message) {
  return {{"metadata", {{"name", name + reason + std::to_string(message.size())}}},
          {"involvedObject", {{"kind", kind}, {"namespace", "ns"}, {"name", name}}},
          {"type", "Warning"},
          {"reason", reason},
          {"message", message},
          {"lastTimestamp", "2026-11-21T12:05:00Z"}};
}

std::string why(const json& job, const std::vector<json>& pods = {}, const std::vector<json>& events = {}) {
  JobIndex index;
  index.put_job(job);
  for (const json& pod : pods) index.put_pod(pod);
  for (const json& event : events) index.put_event(event);
  return index.views(kNow).at(0).why;
}

const json kStarting = {{"phase", "Starting"}, {"replicas", 2}};

}  // namespace

TEST_CASE("a failed image pull is reported with the image and the registry's error") {
  CHECK_GOLDEN(
      why(make_job(kStarting), {make_pod(0, waiting("ErrImagePull", "rpc error: code = NotFound desc = not found"))}));
  const json back_off = waiting("ImagePullBackOff", "Back-off pulling image \"registry.local/x:1\"");
  CHECK_GOLDEN(why(make_job(kStarting), {make_pod(0, back_off)}));
  CHECK_GOLDEN(
      why(make_job(kStarting), {make_pod(0, back_off)},
          {make_event("Pod", "job-u-0-0", "Failed",
                      "Failed to pull image \"registry.local/x:1\": rpc error: code = Unknown desc = no route to host"),
           make_event("Pod", "job-u-0-0", "Failed", "Error: ImagePullBackOff")}));
}

TEST_CASE("the scheduler's message is reworded in plain language") {
  CHECK_GOLDEN(plain_unschedulable("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."));
  CHECK_GOLDEN(plain_unschedulable(
      "0/3 nodes are available: 1 node(s) had taint {node-role.kubernetes.io/master: }, that the pod "
      "didn't tolerate, 2 Insufficient cpu."));
  CHECK_GOLDEN(plain_unschedulable("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity."));
  CHECK_GOLDEN(plain_unschedulable(
      "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. preemption: 0/2 nodes are "
      "available: 2 No preemption victims found for incoming pod."));
  CHECK_GOLDEN(plain_unschedulable("0/2 nodes are available: 2 persistentvolumeclaim \"data\" not found."));
  CHECK_GOLDEN(plain_unschedulable("persistentvolumeclaim \"data\" not found"));
  CHECK_GOLDEN(plain_unschedulable("0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims."));
  CHECK_GOLDEN(plain_unschedulable("something new"));
}

TEST_CASE("a problem of all replicas is reported once, and a problem of some replicas with the lowest affected rank") {
  const json full = unschedulable("0/2 nodes are available: 2 Insufficient cpu.");
  CHECK_GOLDEN(why(make_job(kStarting), {make_pod(0, full, ""), make_pod(1, full, "")}));
  CHECK_GOLDEN(why(make_job(kStarting), {make_pod(0, running()), make_pod(1, full, "")}));
}

TEST_CASE("the reason why a pod is waiting is taken from its events if its status gives none") {
  const json creating = waiting("ContainerCreating");
  CHECK(why(make_job(kStarting), {make_pod(0, creating)}).empty());
  CHECK_GOLDEN(why(make_job(kStarting), {make_pod(0, creating)},
                   {make_event("Pod", "job-u-0-0", "FailedMount",
                               "MountVolume.SetUp failed for volume \"v\" : secret \"nope\" not found")}));
  // The event is outdated, because the pod is running.
  CHECK(why(make_job({{"phase", "Running"}}), {make_pod(0, running())},
            {make_event("Pod", "job-u-0-0", "FailedMount", "timed out")})
            .empty());
}

TEST_CASE("an exceeded quota or another failure to create pods is reported for the job") {
  CHECK_GOLDEN(
      why(make_job(kStarting), {},
          {make_event("AdaptDLJob", "job", "FailedCreate",
                      "Error creating: pods \"job-u-0-0\" is forbidden: exceeded quota: few, requested: pods=1, used: "
                      "pods=2, limited: pods=2")}));
  CHECK_GOLDEN(
      why(make_job(kStarting), {}, {make_event("AdaptDLJob", "job", "FailedCreate", "admission webhook said no")}));
}

TEST_CASE("a failure is reported as an exit code, a signal, an OOM kill or an eviction") {
  const json failed = {{"phase", "Failed"}, {"reason", "PodFailure"}, {"message", "job-u-0-1 Failed"}};
  CHECK_GOLDEN(why(make_job(failed), {make_pod(1, terminated({{"exitCode", 7}, {"reason", "Error"}}))}));
  CHECK_GOLDEN(why(make_job(failed), {make_pod(1, terminated({{"exitCode", 137}, {"reason", "OOMKilled"}}))}));
  CHECK_GOLDEN(why(make_job(failed), {make_pod(1, terminated({{"exitCode", 139}, {"reason", "Error"}}))}));
  CHECK_GOLDEN(why(make_job(failed), {make_pod(1, {{"phase", "Failed"},
                                                   {"reason", "Evicted"},
                                                   {"message", "The node was low on resource: memory. "}})}));
  CHECK(why(make_job(failed)) == "job-u-0-1 Failed");
  CHECK_GOLDEN(why(make_job({{"phase", "Failed"}, {"reason", "Invalid"}, {"message", "inconsistent pods in group"}})));
}

TEST_CASE("exit code 143 of a stopping job is not a failure unless the job is non-preemptible") {
  json job = make_job({{"phase", "Stopping"}});
  const json asked = terminated({{"exitCode", 143}, {"reason", "Error"}});
  CHECK_GOLDEN(why(job, {make_pod(0, asked)}));
  job["spec"]["preemptible"] = false;
  CHECK_GOLDEN(why(job, {make_pod(0, asked)}));
}

TEST_CASE("a suspended job is reported as suspended, unless it is being deleted") {
  json job = make_job({{"phase", "Suspended"}, {"reason", "Suspended"}, {"message", "suspended by spec.suspend"}});
  CHECK_GOLDEN(why(job));
  CHECK_GOLDEN(why(job, {make_pod(0, terminated({{"exitCode", 1}}))}));
  CHECK_FALSE(wants_events(parse_job(job), {}));
  job["metadata"]["deletionTimestamp"] = "2026-11-21T12:09:00Z";
  CHECK_GOLDEN(why(job));
}

TEST_CASE("a job that no scheduler has handled and a deletion held up by finalizers are reported") {
  CHECK_GOLDEN(why(make_job()));
  CHECK_GOLDEN(why(make_job({{"phase", "Pending"}})));
  json job = make_job({{"phase", "Running"}});
  job["metadata"]["deletionTimestamp"] = "2026-11-21T12:09:00Z";
  CHECK_GOLDEN(why(job));
  job["metadata"]["finalizers"] = {"example.com/hold"};
  CHECK_GOLDEN(why(job));
}

TEST_CASE("objects with missing or malformed fields are tolerated") {
  const std::vector<json> odd = {
      json(),
      json::array(),
      7,
      "x",
      json::object(),
      {{"metadata", 3}, {"spec", "x"}, {"status", {1}}},
      {{"status", {{"containerStatuses", {1, nullptr, json::object()}}, {"conditions", "x"}}}}};
  for (const json& object : odd) {
    JobIndex index;
    index.put_job(object);
    index.put_pod(object);
    index.put_event(object);
    CHECK(index.views(kNow).size() == 1);
    index.drop_pod(object);
    index.drop_event(object);
    index.drop_job(object);
    CHECK(index.views(kNow).empty());
  }
}

TEST_CASE("replicas and ready replicas are counted in the newest group only") {
  JobIndex index;
  index.put_job(make_job({{"phase", "Running"}, {"replicas", 2}, {"readyReplicas", 0}, {"group", 1}}));
  json old = make_pod(0, running());
  old["metadata"]["name"] = "old";
  index.put_pod(old);
  json fresh = make_pod(0, running()), other = make_pod(1, waiting("ContainerCreating"));
  for (json* pod : {&fresh, &other}) (*pod)["metadata"]["annotations"]["adaptdl/group"] = "1";
  index.put_pod(fresh);
  index.put_pod(other);
  const JobView view = index.views(kNow).at(0);
  CHECK(view.replicas.size() == 2);
  CHECK(view.ready == 1);
  CHECK(view.wanted == 2);
}

}  // namespace kube_job_why_test
