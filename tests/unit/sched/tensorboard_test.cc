#include <doctest/doctest.h>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "kube/jobs/tensorboard.h"

namespace tensorboard_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using nlohmann::json;

TEST_CASE("a TensorBoard's objects match those of the Python command") {
  const TensorBoardObjects objects =
      tensorboard_objects({.name = "mine", .storage_class = "fast", .size = "5Gi", .image = "tb"});
  for (const json& object : {objects.deployment, objects.claim, objects.service}) {
    CHECK(object["metadata"] ==
          json::parse(R"({"name": "adaptdl-tensorboard-mine", "labels": {"adaptdl/tensorboard": "mine"}})"));
  }
  const json& pod = objects.deployment["spec"]["template"]["spec"];
  CHECK(objects.deployment["spec"]["selector"]["matchLabels"] == json::parse(R"({"adaptdl/tensorboard": "mine"})"));
  CHECK(pod["volumes"] ==
        json::parse(R"([{"name": "logdir", "persistentVolumeClaim": {"claimName": "adaptdl-tensorboard-mine"}}])"));
  CHECK(pod["containers"][0]["command"] == json::parse(R"(["tensorboard"])"));
  CHECK(pod["containers"][0]["args"] == json::parse(R"(["--host=0.0.0.0", "--logdir=/adaptdl/tensorboard"])"));
  CHECK(pod["containers"][0]["ports"] == json::parse(R"([{"containerPort": 6006}])"));
  CHECK(pod["containers"][0]["volumeMounts"] ==
        json::parse(R"([{"name": "logdir", "mountPath": "/adaptdl/tensorboard"}])"));
  CHECK(objects.claim["spec"] == json::parse(R"({"storageClassName": "fast", "accessModes": ["ReadWriteMany"],
      "volumeMode": "Filesystem", "resources": {"requests": {"storage": "5Gi"}}})"));
  CHECK(objects.service["spec"] == json::parse(R"({"selector": {"adaptdl/tensorboard": "mine"}, "type": "ClusterIP",
      "ports": [{"port": 6006, "targetPort": 6006}]})"));
}

TEST_CASE("an invalid name or size of a TensorBoard is rejected") {
  for (const char* name : {"", "Upper", "under_score", "ends-", "a.b"})
    CHECK_THROWS_AS(tensorboard_objects({.name = name}), UsageError);
  CHECK_THROWS_AS(tensorboard_objects({.name = std::string(50, 'x')}), UsageError);
  for (const char* size : {"", "0", "-1Gi", "much"})
    CHECK_THROWS_AS(tensorboard_objects({.name = "x", .size = size}), UsageError);
}

TEST_CASE("a TensorBoard's storage class is the requested class, the default, or one whose volumes nodes can share") {
  const std::vector<json> classes{
      json::parse(R"({"metadata": {"name": "disk"}, "provisioner": "ebs.csi.aws.com"})"),
      json::parse(R"({"metadata": {"name": "shared"}, "provisioner": "rook-ceph.cephfs.csi.ceph.com"})")};
  CHECK(choose_storage_class(classes, "disk") == "disk");
  CHECK(choose_storage_class(classes, "") == "shared");
  auto with_default = classes;
  with_default[0]["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] = "true";
  CHECK(choose_storage_class(with_default, "") == "disk");
  CHECK_GOLDEN(::testing::error_of([&] { choose_storage_class(classes, "gone"); }));
  CHECK_THROWS_WITH_AS(choose_storage_class({classes[0]}, ""), doctest::Contains("--storageclass"), Error);
}

}  // namespace tensorboard_test
