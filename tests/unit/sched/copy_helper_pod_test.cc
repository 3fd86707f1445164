#include <doctest/doctest.h>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "kube/api/timestamp.h"
#include "kube/copy/helper_pod.h"
#include "kube/copy/replica_choice.h"

namespace copy_helper_pod_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using nlohmann::json;

namespace {

json job() {
  return json::parse(
      R"({"metadata": {"name": "digits", "namespace": "team", "uid": "u1"}, "spec": {"template": {"spec": {
    "imagePullSecrets": [{"name": "pull"}],
    "containers": [
      {"name": "main", "image": "digits:1", "command": ["train"], "env": [{"name": "SECRET", "value": "x"}],
       "resources": {"limits": {"nvidia.com/gpu": 1}},
       "volumeMounts": [
         {"name": "adaptdl-pvc", "mountPath": "/adaptdl/checkpoint", "subPath": "adaptdl/checkpoint"},
         {"name": "adaptdl-pvc", "mountPath": "/adaptdl/share", "subPath": "adaptdl/share"},
         {"name": "other", "mountPath": "/other"}]},
      {"name": "beside", "image": "b", "volumeMounts": [{"name": "adaptdl-pvc", "mountPath": "/adaptdl/share", "subPath": "x"}]}],
    "volumes": [{"name": "other", "emptyDir": {}},
                {"name": "adaptdl-pvc", "persistentVolumeClaim": {"claimName": "claim"}}]}}}})");
}

Replica replica(int group, int rank, const std::string& phase = "Running") {
  Replica made;
  made.name = std::to_string(group) + '-' + std::to_string(rank);
  made.group = group;
  made.rank = rank;
  made.phase = phase;
  made.started = true;
  return made;
}

}  // namespace

TEST_CASE("a helper pod mounts the job's volume at a replica's paths, but has no environment variables or GPUs") {
  const json pod = helper_pod_object(job(), "digits-copy-1", "");
  const json& spec = pod["spec"];
  REQUIRE(spec["containers"].size() == 1);
  const json& container = spec["containers"][0];
  CHECK(container["image"] == "digits:1");
  CHECK(container["command"] == json::array({"cat"}));
  CHECK(container["stdin"] == true);
  CHECK_FALSE(container.contains("env"));
  CHECK_FALSE(container["resources"]["limits"].contains("nvidia.com/gpu"));
  CHECK(container["volumeMounts"] ==
        json::parse(R"([{"name": "adaptdl-pvc", "mountPath": "/adaptdl/checkpoint", "subPath": "adaptdl/checkpoint"},
                        {"name": "adaptdl-pvc", "mountPath": "/adaptdl/share", "subPath": "adaptdl/share"}])"));
  CHECK(spec["volumes"] ==
        json::parse(R"([{"name": "adaptdl-pvc", "persistentVolumeClaim": {"claimName": "claim"}}])"));
  CHECK(spec["imagePullSecrets"] == job()["spec"]["template"]["spec"]["imagePullSecrets"]);
}

TEST_CASE("a label with a long job name is truncated to a valid value") {
  json named = job();
  named["metadata"]["name"] = std::string(61, 'a') + "-.b";
  CHECK(helper_pod_object(named, "copy", "")["metadata"]["labels"].front() == std::string(61, 'a'));
}

TEST_CASE("a helper pod has a deadline, an owner, and no replica label") {
  const json pod = helper_pod_object(job(), "digits-copy-1", "busybox");
  CHECK(pod["spec"]["containers"][0]["image"] == "busybox");
  CHECK(pod["spec"]["activeDeadlineSeconds"] == 3600);
  CHECK(pod["spec"]["restartPolicy"] == "Never");
  CHECK(
      pod["metadata"]["ownerReferences"] ==
      json::parse(R"([{"apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "name": "digits", "uid": "u1"}])"));
  CHECK(pod["metadata"]["labels"] == json::parse(R"({"adaptdl/cli-copy": "digits"})"));
}

TEST_CASE("a helper pod for a job without a volume is rejected") {
  json bare = job();
  bare["spec"]["template"]["spec"]["volumes"] = json::array();
  CHECK_GOLDEN(::testing::error_of([&] { helper_pod_object(bare, "x", ""); }));
  CHECK_THROWS_AS(helper_pod_object(json::parse(R"({"metadata": {"name": "x", "uid": "u"}})"), "x", ""), Error);
}

TEST_CASE("a helper pod is a leftover if it has ended or is past its deadline") {
  const auto now = *parse_time("2026-01-01T12:00:00Z");
  const auto pod = [](const char* phase, const char* created) {
    return json{{"status", {{"phase", phase}}}, {"metadata", {{"creationTimestamp", created}}}};
  };
  CHECK_FALSE(is_leftover(pod("Running", "2026-01-01T11:30:00Z"), now));
  CHECK(is_leftover(pod("Running", "2026-01-01T10:59:00Z"), now));
  CHECK(is_leftover(pod("Failed", "2026-01-01T11:59:00Z"), now));
}

TEST_CASE("the replica to copy from is the running one with the lowest rank in the newest group") {
  std::vector<Replica> replicas{replica(1, 0), replica(2, 1), replica(2, 0, "Pending"), replica(2, 2)};
  REQUIRE(choose_replica(replicas, {}) != nullptr);
  CHECK(choose_replica(replicas, {})->name == "2-1");
  CHECK(choose_replica(replicas, 2)->name == "2-2");
  CHECK(choose_replica(replicas, 3) == nullptr);
  replicas[1].leaving = replicas[3].leaving = true;
  CHECK(choose_replica(replicas, {})->name == "1-0");
  CHECK(choose_replica({}, {}) == nullptr);
}

}  // namespace copy_helper_pod_test
