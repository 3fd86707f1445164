// Tests what submitting adds to a job, and how its storage and the cluster's registry are chosen.
#include "kube/jobs/submission.h"

#include <doctest/doctest.h>

#include <set>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "kube/api/names.h"
#include "kube/jobs/image_registry.h"
#include "kube/jobs/storage_class.h"

namespace kube_submission_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using nlohmann::json;

namespace {

const json kJob = json::parse(R"({"apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob",
  "metadata": {"generateName": "hello-"}, "spec": {"template": {"spec": {"containers": [
    {"name": "main", "args": ["old"], "env": [{"name": "A", "value": "1"}]}, {"name": "side", "image": "s"}]}}}})");

SubmissionOptions options() {
  SubmissionOptions options;
  options.name_space = "here";
  options.image = "localhost:32000/adaptdl-submit@sha256:0";
  options.storage = StorageChoice{"shared", "ReadWriteMany"};
  return options;
}

json storage_class(const char* name, const char* provisioner, bool is_default = false) {
  json made{{"metadata", {{"name", name}}}, {"provisioner", provisioner}};
  if (is_default) made["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] = "true";
  return made;
}

json registry(const char* name_space, const char* name, const char* port, int node_port) {
  return {{"metadata", {{"namespace", name_space}, {"name", name}}},
          {"spec", {{"ports", {{{"name", port}, {"port", 5000}, {"nodePort", node_port}}}}}}};
}

}  // namespace

TEST_CASE("all containers mount the checkpoint and share paths, and the first gets the image and arguments") {
  SubmissionOptions with = options();
  with.arguments = {"--epochs", "3"};
  with.pull_secret = "creds";
  const Submission made = make_submission(kJob, with);
  const json& pod = made.job["spec"]["template"]["spec"];
  const std::string claim = made.claim["metadata"]["name"];
  CHECK(claim.starts_with("adaptdl-pvc-"));
  CHECK(pod["volumes"] ==
        json::parse(R"([{"name": "adaptdl-pvc", "persistentVolumeClaim": {"claimName": ")" + claim + R"("}}])"));
  for (const json& container : pod["containers"]) {
    CHECK(container["volumeMounts"] == json::parse(R"([
      {"name": "adaptdl-pvc", "mountPath": "/adaptdl/checkpoint", "subPath": "adaptdl/checkpoint"},
      {"name": "adaptdl-pvc", "mountPath": "/adaptdl/share", "subPath": "adaptdl/share"}])"));
  }
  CHECK(pod["containers"][0]["env"] == json::parse(R"([{"name": "A", "value": "1"},
    {"name": "ADAPTDL_CHECKPOINT_PATH", "value": "/adaptdl/checkpoint"},
    {"name": "ADAPTDL_SHARE_PATH", "value": "/adaptdl/share"}])"));
  CHECK(pod["containers"][0]["image"] == with.image);
  CHECK(pod["containers"][0]["args"] == json{"--epochs", "3"});
  CHECK(pod["containers"][1]["image"] == "s");
  CHECK_FALSE(pod["containers"][1].contains("args"));
  CHECK(pod["imagePullSecrets"] == json::parse(R"([{"name": "creds"}])"));
}

TEST_CASE("a job's volume claim is labeled with the job's name and has the requested class, mode and size") {
  SubmissionOptions with = options();
  with.storage_size = "5Gi";
  const Submission made = make_submission(kJob, with);
  CHECK(made.claim["metadata"]["namespace"] == "here");
  CHECK(made.claim["metadata"]["labels"] == json{{"adaptdl/job", made.name()}});
  CHECK(made.claim["spec"] == json::parse(R"({"storageClassName": "shared", "accessModes": ["ReadWriteMany"],
    "volumeMode": "Filesystem", "resources": {"requests": {"storage": "5Gi"}}})"));
}

TEST_CASE("a TensorBoard's volume is mounted, and its path is set in the environment") {
  SubmissionOptions with = options();
  with.tensorboard = "mine";
  const Submission made = make_submission(kJob, with);
  const json& pod = made.job["spec"]["template"]["spec"];
  CHECK(pod["volumes"][1] == json::parse(R"({"name": "adaptdl-tensorboard",
    "persistentVolumeClaim": {"claimName": "adaptdl-tensorboard-mine"}})"));
  CHECK(pod["containers"][1]["volumeMounts"][2] ==
        json{{"name", "adaptdl-tensorboard"}, {"mountPath", "/adaptdl/tensorboard"}});
  CHECK(pod["containers"][1]["env"][2] ==
        json{{"name", "ADAPTDL_TENSORBOARD_LOGDIR"}, {"value", "/adaptdl/tensorboard"}});
}

TEST_CASE("a job keeps the name in its file or gets a unique generated name") {
  std::set<std::string> names;
  for (int i = 0; i < 20; ++i) names.insert(make_submission(kJob, options()).name());
  CHECK(names.size() == 20);
  for (const std::string& name : names) CHECK((name.starts_with("hello-") && name.size() == 11));
  json named = kJob;
  named["metadata"] = {{"name", "fixed"}, {"namespace", "there"}};
  CHECK(make_submission(named, options()).name() == "fixed");
  CHECK(make_submission(named, options()).name_space() == "there");
  SubmissionOptions with = options();
  with.name = "mine";
  CHECK(make_submission(named, with).name().starts_with("mine-"));
  with.name = "Mine";
  CHECK_THROWS_AS(make_submission(named, with), UsageError);
  with = options();
  with.name_space_asked_for = true;
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { make_submission(named, with); }));
}

TEST_CASE("arguments, image and replicas keep the file's values unless they are overridden") {
  SubmissionOptions with = options();
  with.image = "";
  json job = kJob;
  job["spec"]["minReplicas"] = 2;
  job["spec"]["template"]["spec"]["containers"][0]["image"] = "own";
  const Submission made = make_submission(job, with);
  CHECK(made.job["spec"]["template"]["spec"]["containers"][0]["image"] == "own");
  CHECK(made.job["spec"]["template"]["spec"]["containers"][0]["args"] == json{"old"});
  CHECK(made.job["spec"]["minReplicas"] == 2);
  with.max_replicas = 1;
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { make_submission(job, with); }));
  with.min_replicas = 1;
  CHECK(make_submission(job, with).job["spec"]["maxReplicas"] == 1);
}

TEST_CASE("a storage size that is not a positive quantity is rejected") {
  for (const char* size : {"", "0", "-1Gi", "much"}) {
    SubmissionOptions with = options();
    with.storage_size = size;
    CHECK_THROWS_WITH_AS(make_submission(kJob, with), doctest::Contains("--checkpoint-storage-size"), UsageError);
  }
}

TEST_CASE("a job's storage class is the requested class, or else one whose volumes nodes can share") {
  const std::vector<json> classes{storage_class("disk", "ebs.csi.aws.com", true),
                                  storage_class("files", "efs.csi.aws.com")};
  CHECK(choose_job_storage(classes, "", true).storage_class == "files");
  CHECK(choose_job_storage(classes, "disk", true).storage_class == "disk");
  CHECK(choose_job_storage(classes, "disk", true).access_mode == "ReadWriteMany");
  CHECK_GOLDEN(::testing::error_of([&] { choose_job_storage(classes, "gone", true); }));
  CHECK_THROWS_WITH_AS(choose_job_storage({classes[0]}, "", true), doctest::Contains("--checkpoint-storage-class"),
                       Error);
  CHECK_GOLDEN(::testing::error_of([&] { choose_job_storage({}, "", true); }));
}

TEST_CASE("the default is preferred among shared storage classes") {
  const std::vector<json> classes{storage_class("a", "example.com/nfs"),
                                  storage_class("b", "x.cephfs.csi.ceph.com", true)};
  CHECK(choose_job_storage(classes, "", true).storage_class == "b");
}

TEST_CASE("with a single node, the default storage class is used with ReadWriteOnce") {
  const std::vector<json> classes{storage_class("a", "x"), storage_class("b", "rancher.io/local-path", true)};
  CHECK(choose_job_storage(classes, "", false).storage_class == "b");
  CHECK(choose_job_storage(classes, "", false).access_mode == "ReadWriteOnce");
  CHECK(choose_job_storage({classes[0]}, "", false).storage_class == "a");
  CHECK_THROWS_AS(choose_job_storage({classes[0], storage_class("c", "y")}, "", false), Error);
}

TEST_CASE("shared storage is recognized by the provisioner's name") {
  for (const char* name : {"efs.csi.aws.com", "nfs.csi.k8s.io", "cluster.local/nfs-subdir-external-provisioner",
                           "rook-ceph.cephfs.csi.ceph.com", "file.csi.azure.com", "filestore.csi.storage.gke.io",
                           "driver.longhorn.io", "microk8s.io/hostpath"})
    CHECK_MESSAGE(is_shared_storage(storage_class("x", name)), name);
  for (const char* name : {"ebs.csi.aws.com", "pd.csi.storage.gke.io", "rook-ceph.rbd.csi.ceph.com", "defs.example.com",
                           "kubernetes.io/no-provisioner", "rancher.io/local-path", ""})
    CHECK_MESSAGE(!is_shared_storage(storage_class("x", name)), name);
}

TEST_CASE("the image registry is a service with a node port 'registry', preferably adaptdl-registry") {
  CHECK_FALSE(choose_image_registry({registry("a", "x", "web", 32000), registry("a", "y", "registry", 0)}));
  const auto one = choose_image_registry({registry("a", "x", "registry", 31000)});
  REQUIRE(one);
  CHECK(one->node_port == 31000);
  const auto ours = choose_image_registry(
      {registry("a", "x", "registry", 31000), registry("b", "adaptdl-registry", "registry", 32000)});
  REQUIRE(ours);
  CHECK(ours->name_space == "b");
  CHECK_GOLDEN(::testing::error_of([&] {
    choose_image_registry({registry("a", "x", "registry", 31000), registry("b", "y", "registry", 32000)});
  }));
}

TEST_CASE("each UUID has version 4 and differs from the previous one") {
  const std::string uuid = make_uuid();
  REQUIRE(uuid.size() == 36);
  CHECK(uuid[14] == '4');
  CHECK(make_uuid() != uuid);
}

}  // namespace kube_submission_test
