// Tests jobs that are suspended while pods, nodes, the operator or the job itself fail, or while another client changes
// the job or its pods.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "kube/api/json_fields.h"
#include "operator_cluster.h"
#include "operator_live_scene.h"
#include "operator_storm.h"
#include "operator_suspend_support.h"

namespace operator_suspend_failures_test {

using namespace operator_suspend_support;
using adaptdl::sched::testing::Cluster;

TEST_CASE("a job that is being suspended does not fail because its pods cannot start") {
  Scene scene = starting({"a"});
  scene.pods[0] = troubled(scene.pods[0], PodTrouble::kImage);
  scene.step();
  scene.now += 20min;
  scene.job["spec"]["suspend"] = true;
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "Suspended");
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Suspended");
  CHECK_FALSE(scene.job["status"].contains("troubleSince"));
}

TEST_CASE("a pause after failed starts still applies after the job is resumed") {
  Scene scene = pending();
  scene.job["status"]["retries"] = 4;
  scene.job["status"]["retryAfter"] = adaptdl::kube::to_string(kNow + 40s);
  scene.job["spec"]["suspend"] = true;
  scene.step();
  CHECK(scene.phase() == "Suspended");
  resume(scene);
  scene.decision = nodes({"a"});
  CHECK(scene.step().look_again == kNow + 40s);
  CHECK(scene.phase() == "Pending");
  CHECK(scene.job["status"]["retries"] == 4);
  scene.now += 40s;
  scene.step();
  CHECK(waits_for_first_fit(scene));
}

TEST_CASE("a job that is suspended while stopping for another reason gets no nodes") {
  for (const char* reason : {"Reallocated", "ReplicaLost", "QuotaExceeded"}) {
    CAPTURE(reason);
    Scene scene = stopping({"a", "b"}, {"c"});
    scene.job["status"]["reason"] = reason;
    scene.job["spec"]["suspend"] = true;
    CHECK(reasons(scene.step()) == Ids{"Suspended"});
    CHECK(scene.phase() == "Stopping");
    CHECK(scene.reason() == "Suspended");
    CHECK(scene.allocation().empty());
    scene.pods.clear();
    scene.step();
    CHECK(scene.phase() == "Suspended");
  }
}

TEST_CASE("a job is not Suspended while a node cannot confirm that its replica has ended") {
  Scene scene = suspended(running({"a", "b"}));
  scene.step();
  scene.pods[0] = ended(scene.pods[0], PodEnd::kCheckpointed);
  scene.pods[1] = leaving(scene.pods[1]);
  scene.nodes["b"] = NodeState::kNotReady;
  CHECK(scene.step().look_again == kNow + 10s);
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "NodeLost");
  scene.nodes.erase("b");
  scene.step();
  CHECK(scene.phase() == "Suspended");
}

TEST_CASE("a job that has ended or is ending cannot be suspended") {
  for (const char* phase : {"Succeeded", "Failed"}) {
    Scene scene = suspended(running({"a"}));
    scene.job["status"]["phase"] = phase;
    scene.pods[0] = ended(scene.pods[0], PodEnd::kSucceeded);
    CHECK(scene.plan().changes_nothing());
    resume(scene);
    CHECK(scene.plan().changes_nothing());
  }
  for (Scene scene : {running({"a"}), stopping({"a"}, {})}) {
    scene.job["spec"]["suspend"] = true;
    scene.pods[0] = ended(scene.pods[0], PodEnd::kSucceeded);
    scene.step();
    CHECK(scene.phase() == "Succeeded");
  }
  Scene failed = suspended(running({"a"}));
  failed.pods[0] = ended(failed.pods[0], PodEnd::kFailed);
  failed.step();
  CHECK(failed.phase() == "Failed");
}

TEST_CASE("pods and an allocation that another client restores to a suspended job are removed") {
  Scene scene = stopped();
  scene.pods = {make_pod(0, "a")};
  CHECK(scene.plan().removals.size() == 1);
  scene.job["status"]["allocation"] = {"a"};
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Suspended");
  CHECK(scene.allocation().empty());
}

TEST_CASE("after a crash at any point, the next operator suspends and resumes the job") {
  const int points = for_each_crash<Cluster>([](Cluster& cluster) {
    decide(cluster, {"a", "a", "b"});
    run_all(cluster);
    cluster.job["spec"]["suspend"] = true;
    for (int i = 0; i < 3; ++i) {
      cluster.decision = JobDecision{{"a", "a", "b"}, "chosen", true, ""};
      cluster.sync();
      cluster.all_progress();
    }
    CHECK(cluster.phase() == "Suspended");
    CHECK(cluster.pods.empty());
    cluster.job["spec"]["suspend"] = false;
    cluster.sync();
    CHECK(cluster.phase() == "Pending");
    decide(cluster, {"b", "c"});
    run_all(cluster);
    CHECK(cluster.group() == 1);
  });
  CHECK(points > 15);
}

TEST_CASE("random suspensions and crashes leave no job stuck and no suspended job with pods" *
          doctest::test_suite("slow")) {
  int groups = 0;
  std::set<std::string> phases;
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Cluster cluster;
    Storm storm(seed, cluster, true);
    storm.rage(250);
    phases.insert(cluster.phase());
    storm.suspend();
    storm.calm();
    groups += cluster.group();
  }
  // The random events are frequent enough, and leave jobs in various phases.
  CHECK(groups > 60);
  CHECK(phases.size() >= 4);
}

}  // namespace operator_suspend_failures_test
