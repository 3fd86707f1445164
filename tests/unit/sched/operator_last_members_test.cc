// Tests how members end if the operator stops a job while its members are changing, or if other members are lost
// meanwhile: the training progress must be saved.
#include <doctest/doctest.h>

#include <algorithm>

#include "operator_live_scene.h"

namespace operator_last_members_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

namespace {

const JobDecision kNothing{{}, "waits: others need its nodes", true, ""};

// Decides that the job must wait, so that its replicas are asked to exit.
void stop(LiveScene& scene) {
  scene.decision = kNothing;
  scene.settle();
  CHECK(scene.phase() == "Stopping");
}

bool is_asked_to_exit(LiveScene& scene, int number) { return scene.pod(number).leaving; }

bool exists(const LiveScene& scene, int number) {
  return std::ranges::any_of(scene.pods, [&](const PodFacts& pod) { return pod.number == number; });
}

}  // namespace

TEST_CASE("when a job stops, replicas can finish forming a generation and save a checkpoint") {
  LiveScene scene = forming();
  scene.generation.reset();
  stop(scene);
  CHECK(scene.members() == Ids{"0-0", "0-1"});  // announced as long as replicas may ask for the generation
  CHECK(is_asked_to_exit(scene, 0));
  CHECK(is_asked_to_exit(scene, 1));
  scene.end(0, PodEnd::kCheckpointed);
  scene.end(1, PodEnd::kCheckpointed);
  scene.settle();
  CHECK(scene.phase() == "Pending");
}

TEST_CASE("a newcomer in the generation is removed after the members that it would have joined have exited") {
  LiveScene scene = forming();
  stop(scene);
  scene.end(0, PodEnd::kCheckpointed);  // still in the previous generation
  scene.settle();
  CHECK(exists(scene, 1));  // the newcomer may be about to exit, too
  scene.now += 10s;
  scene.settle();
  CHECK_FALSE(exists(scene, 1));
  CHECK(scene.phase() == "Pending");
}

TEST_CASE("when a job stops, members that are waiting for replacements form a generation and save a checkpoint") {
  LiveScene scene({"a", "b", "c"}, 3);
  scene.settle();
  scene.end(1, PodEnd::kLost);
  scene.settle();
  scene.now += 1s;
  scene.settle();
  REQUIRE(exists(scene, 3));
  REQUIRE_FALSE(scene.generation);
  stop(scene);
  CHECK_FALSE(exists(scene, 3));
  REQUIRE(scene.generation);
  CHECK(scene.members() == Ids{"0-0", "0-2"});
  CHECK(is_asked_to_exit(scene, 0));
  CHECK(is_asked_to_exit(scene, 2));
  for (const int number : {0, 2}) scene.end(number, PodEnd::kCheckpointed);
  scene.settle();
  CHECK(scene.phase() == "Pending");
}

TEST_CASE("members that lose a peer while the job stops form a generation and save a checkpoint") {
  for (const bool has_changed : {false, true}) {
    for (const bool node_lost : {false, true}) {
      CAPTURE(has_changed);
      CAPTURE(node_lost);
      LiveScene scene = has_changed ? grown() : LiveScene({"a", "b"});
      scene.settle();
      scene.generation.reset();
      stop(scene);
      if (node_lost) {
        scene.nodes.erase("b");
      } else {
        scene.erase(1);  // its pod disappears without a known exit status
        scene.reports.waits[0] = {.after = has_changed ? 1 : 0, .broken = true};
      }
      scene.settle();
      REQUIRE(scene.generation);
      CHECK(scene.generation->number == (has_changed ? 2 : 1));
      CHECK(scene.members() == Ids{"0-0"});
      CHECK(scene.phase() == "Stopping");
      scene.end(0, PodEnd::kCheckpointed);
      scene.settle();
      CHECK(scene.phase() == "Pending");
    }
  }
}

TEST_CASE("a member that hangs while the job stops is removed from the generation") {
  LiveScene scene = grown();
  stop(scene);
  scene.reports.waits[0] = {.after = 1, .broken = true};
  scene.settle();
  CHECK(exists(scene, 1));
  scene.now += 16s;
  scene.settle();
  CHECK_FALSE(exists(scene, 1));
  CHECK(scene.members() == Ids{"0-0"});
}

TEST_CASE("members that save a checkpoint and exit one after another do not form a new generation") {
  LiveScene scene = grown();
  const auto before = scene.generation;
  stop(scene);
  scene.end(1, PodEnd::kCheckpointed);
  scene.settle();
  CHECK(scene.generation->number == before->number);
  scene.erase(1);
  scene.settle();
  CHECK(scene.generation->number == before->number);
  scene.erase(0);  // its exit was not observed
  scene.settle();
  CHECK(scene.phase() == "Pending");
}

TEST_CASE("a job that finishes while it is stopping succeeds") {
  LiveScene scene = grown();
  stop(scene);
  scene.end(1, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Stopping");
  scene.end(0, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Succeeded");
}

TEST_CASE("when another client deletes a member's pod, members and joining newcomers save a checkpoint together") {
  LiveScene scene = forming();
  scene.pod(0).leaving = true;
  scene.settle();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
  CHECK(exists(scene, 1));
  for (const int number : {0, 1}) scene.end(number, PodEnd::kCheckpointed);
  scene.settle();
  CHECK(scene.job["status"]["group"] == 1);
}

TEST_CASE("a new operator lets the members of a stopping job save a checkpoint") {
  LiveScene scene({"a", "b"}, 2);
  scene.settle();
  stop(scene);
  scene.nodes.erase("b");
  scene.act();
  scene.reports = {};
  scene.generation.reset();
  scene.settle();
  CHECK(scene.members() == Ids{"0-0"});
}

TEST_CASE("a job is restarted on its new nodes if replacements cannot run beside its replicas") {
  PodTrouble trouble = PodTrouble::kUnscheduled;
  SUBCASE("the new node is in use") {}
  SUBCASE("the volume is attached to the old node, and the pods report no problem") { trouble = PodTrouble::kNone; }
  LiveScene scene({"a"});
  scene.decision = nodes({"b"});
  scene.settle();
  scene.pod(1) = troubled(scene.pod(1), trouble);
  scene.now += 59s;
  scene.settle();
  CHECK(scene.phase() == "Running");
  scene.now += 1s;
  scene.settle();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.text("message") == "its replicas cannot move to node 'b' while they run");
  CHECK(scene.allocation() == Allocation{"b"});
  CHECK_FALSE(exists(scene, 1));
  scene.end(0, PodEnd::kCheckpointed);
  scene.settle();
  CHECK(scene.job["status"]["group"] == 1);
}

TEST_CASE("a job keeps running on its nodes if its replacements cannot pull their image") {
  LiveScene scene({"a"});
  scene.decision = nodes({"b"});
  scene.settle();
  scene.pod(1) = troubled(scene.pod(1), PodTrouble::kImage);
  scene.now += 300s;
  scene.settle();
  CHECK(scene.phase() == "Running");
}

TEST_CASE("a job that only grows keeps running while it waits for resources") {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.settle();
  scene.pod(1) = troubled(scene.pod(1), PodTrouble::kUnscheduled);
  scene.now += 300s;
  scene.settle();
  CHECK(scene.phase() == "Running");
}

TEST_CASE("a member that failed before the job stopped does not block the others") {
  LiveScene scene({"a", "b", "c"});
  scene.settle();
  scene.end(0, PodEnd::kLost);
  scene.settle();
  REQUIRE(scene.members() == Ids{"0-1", "0-2"});
  scene.end(1, PodEnd::kFailed);  // fails before it has met the other member
  scene.settle();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.generation->number == 2);
  CHECK(scene.members() == Ids{"0-2"});
}

TEST_CASE("when a job stops after several losses, a single generation is announced for the remaining members") {
  LiveScene scene({"a", "b", "c"});
  scene.settle();
  scene.end(1, PodEnd::kFailed);  // fails because it lost a peer; that node is not known to be lost yet
  CHECK_FALSE(scene.act().generation);
  scene.nodes.erase("a");
  for (int steps = 0; steps < 5; ++steps) {
    if (const Plan plan = scene.act(); plan.generation) CHECK(scene.members() == Ids{"0-2"});
  }
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.members() == Ids{"0-2"});
}

TEST_CASE("a pod that disappears while a generation is forming does not block the others") {
  LiveScene scene = forming();
  stop(scene);
  scene.erase(1);
  scene.settle();
  CHECK(scene.generation->number == 2);
  CHECK(scene.members() == Ids{"0-0"});
}

TEST_CASE("a job immediately leaves a node that is about to be removed") {
  LiveScene scene({"a", "a"}, 2);
  scene.nodes["a"] = NodeState::kLeaving;
  scene.decision = nodes({"b", "b"});
  scene.settle();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.text("message") == "node 'a' is about to be removed");
  CHECK(scene.allocation() == Allocation{"b", "b"});
  // If enough replicas are on other nodes, the replicas on node a leave at once, without a restart.
  LiveScene other({"a", "b"});
  other.nodes["a"] = NodeState::kLeaving;
  other.decision = nodes({"b", "c"});
  other.settle();
  CHECK(other.phase() == "Running");
  CHECK(other.members() == Ids{"0-1"});
}

TEST_CASE("a job is restarted on its new nodes if its quota does not allow replacements") {
  LiveScene scene({"a", "a"}, 2);
  scene.decision = nodes({"b", "b"});
  scene.step();
  scene.refusal = PodRefusal{2, true, "exceeded quota"};
  scene.act();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.text("message") == "its replicas cannot be replaced while they run: exceeded quota");
  CHECK(scene.allocation() == Allocation{"b", "b"});
}

}  // namespace operator_last_members_test
