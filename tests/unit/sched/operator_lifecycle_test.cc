// Tests the phases of a job without failures: what starts, stops and ends it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "operator/jobs/job_status.h"
#include "operator_scene.h"

namespace operator_lifecycle_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

TEST_CASE("a new job waits for nodes, then starts, and is running once all of its pods are") {
  Scene scene;
  scene.step();
  CHECK(scene.phase() == "Pending");
  CHECK(scene.plan().changes_nothing());
  scene.decision = nodes({"a", "a", "b"});
  CHECK(scene.step().missing.empty());  // the status with the group must be written first
  CHECK(scene.phase() == "Starting");
  CHECK(scene.job["status"]["group"] == 0);
  CHECK(scene.job["status"]["replicas"] == 3);
  CHECK(scene.text("message") == "chosen");
  CHECK(scene.plan().missing == std::vector<int>{0, 1, 2});
  scene.pods = {make_pod(0, "a"), make_pod(1, "a")};
  CHECK(scene.step().missing == std::vector<int>{2});
  CHECK(scene.job["status"]["readyReplicas"] == 2);
  CHECK(scene.phase() == "Starting");
  scene.pods.push_back(make_pod(2, "b"));
  scene.step();
  CHECK(scene.phase() == "Running");
  CHECK(scene.plan().changes_nothing());
}

TEST_CASE("a group's addresses are reported only when all of them are known") {
  Scene scene = starting({"a", "b"});
  scene.pods[1].ip.clear();
  CHECK(scene.plan().addresses.empty());
  scene.pods[1].ip = "10.0.0.7";
  CHECK(scene.plan().addresses == std::vector<std::string>{"10.0.0.0", "10.0.0.7"});
}

TEST_CASE("no group starts while a pod of another group may still run") {
  SUBCASE("a pod of a pending job") {
    Scene scene = pending();
    scene.pods = {make_pod(0, "a", 3)};
    scene.decision = nodes({"b"});
    CHECK(scene.step().removals.size() == 1);
    CHECK(scene.phase() == "Pending");
  }
  SUBCASE("a pod of a stopping job") {
    Scene scene = stopping({"a", "b"}, {"c"});
    scene.pods[0] = ended(scene.pods[0], PodEnd::kCheckpointed);
    scene.pods[1] = leaving(scene.pods[1]);
    CHECK(scene.plan().changes_nothing());
    scene.pods[1] = ended(scene.pods[1], PodEnd::kCheckpointed);
    scene.step();
    CHECK(scene.phase() == "Starting");
    CHECK(scene.job["status"]["group"] == 1);
  }
  SUBCASE("a pod that is reported late") {
    Scene scene = starting({"a", "b"});
    scene.job["status"]["group"] = 1;
    const Plan plan = scene.plan();
    CHECK(plan.missing.empty());
    CHECK(plan.removals.size() == 2);
    CHECK(plan.addresses.empty());
  }
  SUBCASE("a pod on a node that is not ready") {
    Scene scene = stopping({"a"}, {"b"});
    scene.pods[0] = leaving(scene.pods[0]);
    scene.nodes["a"] = NodeState::kNotReady;
    scene.decision = nodes({"c"});
    const Plan plan = scene.step();
    CHECK(plan.removals.empty());
    CHECK(plan.look_again == kNow + 10s);
    CHECK(scene.phase() == "Stopping");
    CHECK(scene.reason() == "NodeLost");
    CHECK(scene.allocation().empty());  // the nodes would be idle
    CHECK(scene.plan().changes_nothing());
  }
}

TEST_CASE("a job with a node that is not ready is reconciled again after 10 seconds") {
  Scene scene = running({"a", "b"});
  scene.nodes["b"] = NodeState::kNotReady;
  CHECK(scene.step().look_again == kNow + 10s);
  CHECK(scene.phase() == "Running");
  CHECK(scene.plan().changes_nothing());
}

TEST_CASE("a job that loses a replica on a cordoned or leaving node waits for new nodes") {
  Scene scene = running({"a", "b"});
  SUBCASE("cordoned node") { scene.nodes["b"] = NodeState::kCordoned; }
  SUBCASE("node that is about to be removed") { scene.nodes["b"] = NodeState::kLeaving; }
  CHECK_FALSE(scene.plan().look_again);
  scene.pods[1] = leaving(scene.pods[1]);
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
  CHECK(scene.allocation().empty());
  CHECK_FALSE(scene.step().look_again);
  CHECK(scene.reason() == "ReplicaLost");
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Pending");
  CHECK(waits_for_first_fit(adaptdl::kube::parse_job(scene.job)));
}

TEST_CASE("a job does not start on an allocated node that is about to be removed") {
  Scene scene = stopping({"a"}, {"b"});
  scene.nodes["b"] = NodeState::kLeaving;
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Pending");
  CHECK(scene.allocation().empty());
}

TEST_CASE("a job starts on a cordoned node that the allocator chose") {
  Scene scene = running({"a"});
  scene.nodes["b"] = NodeState::kCordoned;
  scene.decision = nodes({"b"});
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.allocation() == Allocation{"b"});
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Starting");
  CHECK(scene.allocation() == Allocation{"b"});
  Scene waiting = pending();
  waiting.nodes["b"] = NodeState::kCordoned;
  waiting.decision = nodes({"b"});
  waiting.step();
  CHECK(waiting.phase() == "Starting");
}

TEST_CASE("a pod is deleted once, and force-deleted only if its node is gone") {
  Scene scene = stopping({"a", "b"}, {"c"});
  scene.pods[0] = leaving(scene.pods[0]);
  auto removals = scene.plan().removals;
  REQUIRE(removals.size() == 1);
  CHECK(removals[0].uid == "uid-0-1");
  CHECK_FALSE(removals[0].force);
  scene.nodes.erase("a");
  removals = scene.plan().removals;
  REQUIRE(removals.size() == 2);
  CHECK(removals[0].force);
}

TEST_CASE("pods on a node that is gone do not delay the next start") {
  Scene scene = running({"a", "b"});
  scene.nodes.erase("b");
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "NodeLost");
  CHECK(scene.allocation().empty());
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed);
  scene.decision = nodes({"a"});
  scene.step();
  CHECK(scene.phase() == "Starting");
}

TEST_CASE("a job succeeds when all replicas exit with 0, even while stopping, and keeps its pods") {
  for (Scene scene : {running({"a", "b"}), starting({"a", "b"}), stopping({"a", "b"}, {"c"})}) {
    for (PodFacts& pod : scene.pods) pod = ended(pod, PodEnd::kSucceeded);
    scene.step();
    CHECK(scene.phase() == "Succeeded");
    CHECK(scene.allocation().empty());
    CHECK(scene.text("completionTimestamp") == "2026-11-21T12:10:00.000000+00:00");
    CHECK(scene.plan().changes_nothing());
  }
}

TEST_CASE("a job keeps running while only some of its replicas have succeeded") {
  Scene scene = running({"a", "b"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kSucceeded);
  scene.step();
  CHECK(scene.phase() == "Running");
  CHECK(scene.plan().changes_nothing());
}

TEST_CASE("a decision for other nodes stops the job, and one for the same nodes does not") {
  Scene scene = running({"a", "b"});
  scene.decision = nodes({"a", "b"});
  CHECK(scene.step().removals.empty());
  CHECK(scene.phase() == "Running");
  scene.decision = nodes({"a", "c"});
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "Reallocated");
  CHECK(scene.allocation() == Allocation{"a", "c"});
  CHECK(scene.plan().removals.size() == 2);
  SUBCASE("the job restarts with the latest decision") {
    scene.decision = nodes({"b"});
    scene.step();
    scene.pods.clear();
    scene.step();
    CHECK(scene.phase() == "Starting");
    CHECK(scene.allocation() == Allocation{"b"});
  }
  SUBCASE("the job waits if one of its new nodes is gone") {
    scene.nodes.erase("c");
    scene.pods.clear();
    scene.step();
    CHECK(scene.phase() == "Pending");
    CHECK(scene.allocation().empty());
  }
}

TEST_CASE("a decision without nodes stops the job, which then waits") {
  Scene scene = running({"a"});
  scene.decision = JobDecision{{}, "waits: others are before it", true};
  scene.step();
  CHECK(scene.phase() == "Stopping");
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Pending");
  CHECK(scene.text("message") == "waits: others are before it");
}

TEST_CASE("a job that is being deleted does not change") {
  Scene scene = running({"a", "b"});
  scene.job["metadata"]["deletionTimestamp"] = kTenSecondsAgo;
  scene.pods.clear();
  scene.decision = nodes({"c"});
  CHECK(scene.plan().changes_nothing());
}

TEST_CASE("a job that has ended does not change") {
  for (const char* phase : {"Succeeded", "Failed"}) {
    Scene scene = running({"a"});
    scene.job["status"]["phase"] = phase;
    scene.decision = nodes({"b"});
    scene.pods[0] = ended(scene.pods[0], PodEnd::kLost);
    scene.nodes.clear();
    CHECK(scene.plan().changes_nothing());
    scene.pods[0] = make_pod(0, "a", 4);
    CHECK(scene.plan().removals.size() == 1);
  }
}

TEST_CASE("a job with an invalid status recovers and runs with all of its pods") {
  const auto fixed_point = [](const json& status) {
    CAPTURE(status);
    Scene scene;
    scene.job["status"] = status;
    for (int i = 0; i < 20; ++i) {
      if (scene.phase() == "Pending") scene.decision = nodes({"a"});
      const Plan plan = scene.step();
      for (const int rank : plan.missing) {
        REQUIRE(static_cast<std::size_t>(rank) < scene.allocation().size());
        scene.pods.push_back(make_pod(rank, scene.allocation()[static_cast<std::size_t>(rank)],
                                      scene.job["status"]["group"].get<int>()));
      }
    }
    CHECK(scene.phase() == "Running");
    CHECK(std::ranges::count(scene.pods, scene.job["status"]["group"].get<int>(), &PodFacts::group) ==
          static_cast<long>(scene.allocation().size()));
  };
  fixed_point({{"phase", "Starting"}, {"allocation", {"a"}}, {"replicas", 3}, {"group", 2}});
  fixed_point({{"phase", "Starting"}, {"allocation", {"a", "b"}}, {"group", 2}});
  fixed_point({{"phase", "Starting"}, {"allocation", json::array()}, {"replicas", 1}});
  fixed_point({{"phase", "Running"}, {"replicas", -1}});
  fixed_point({{"phase", "Running"}, {"allocation", "a"}, {"replicas", "x"}, {"group", {}}});
  fixed_point({{"phase", "Stopping"}});
  fixed_point({{"phase", 3}});
}

TEST_CASE("a wrong group number in the status is corrected from the pods") {
  for (const json& wrong : {json(), json(-7), json(1), json(2'000'000)}) {
    Scene scene = running({"a"});
    scene.pods = {make_pod(0, "a", 3)};
    scene.job["status"]["group"] = wrong;
    const Plan plan = scene.plan();
    CHECK(plan.status["group"] == 3);
    CHECK(plan.removals.empty());
    CHECK(plan.missing.empty());
  }
}

TEST_CASE("a pod that does not belong to a replica of the group is removed") {
  Scene scene = running({"a"});
  for (const auto& [group, rank] : {std::pair(-1, -1), std::pair(0, 1), std::pair(0, -1)}) {
    PodFacts other = make_pod(7, "b");
    other.group = group;
    other.rank = other.number = rank;
    scene.pods.resize(1);
    scene.pods.push_back(other);
    const auto removals = scene.plan().removals;
    REQUIRE(removals.size() == 1);
    CHECK(removals[0].uid == "uid-0-7");
  }
}

}  // namespace operator_lifecycle_test
