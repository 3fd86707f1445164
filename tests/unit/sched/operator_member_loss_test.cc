// Tests whether and how a running job whose program follows generations survives the loss of members.
#include <doctest/doctest.h>

#include "operator_live_scene.h"

namespace operator_member_loss_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

TEST_CASE("after the loss of a member, the others continue and a replacement joins") {
  for (const bool node_lost : {false, true}) {
    CAPTURE(node_lost);
    LiveScene scene = grown();
    if (node_lost) {
      scene.nodes.erase("a");
    } else {
      scene.end(0, PodEnd::kLost);
    }
    scene.settle();
    CHECK(scene.phase() == "Running");
    CHECK(scene.members() == Ids{"0-1"});
    CHECK(scene.generation->number == 2);
    CHECK(scene.pod(1).rank == 0);
    if (node_lost) {
      scene.decision = nodes({"b", "c"});
      scene.settle();
    }
    scene.train();
    scene.now += 1s;
    scene.settle();
    CHECK(scene.pod(2).node == (node_lost ? "c" : "a"));
    scene.wait(2);
    scene.settle();
    CHECK(scene.members() == Ids{"0-1", "0-2"});
    CHECK(scene.job["status"]["group"] == 0);
  }
}

TEST_CASE("a job that falls below its minimum number of members waits for replacements") {
  LiveScene scene({"a", "b"}, 2);
  scene.settle();
  scene.end(1, PodEnd::kLost);
  scene.settle();
  CHECK(scene.phase() == "Running");
  CHECK_FALSE(scene.generation);
  scene.now += 1s;
  scene.settle();
  scene.wait(2);
  scene.settle();
  CHECK(scene.members() == Ids{"0-0", "0-2"});
}

TEST_CASE("a job that loses all members is restarted as a new group") {
  LiveScene scene({"a"});
  scene.settle();
  scene.end(0, PodEnd::kLost);
  scene.act();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
  scene.settle();
  CHECK(scene.phase() == "Running");
  CHECK(scene.job["status"]["group"] == 1);
  CHECK_FALSE(scene.job["status"].contains("membership"));
}

TEST_CASE("a job that is not preemptible is restarted when it loses a replica") {
  LiveScene scene({"a", "b"});
  scene.job["spec"]["preemptible"] = false;
  scene.settle();
  scene.nodes.erase("b");
  scene.act();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "NodeLost");
}

TEST_CASE("a hung member is removed 15 seconds after the others report a broken group") {
  LiveScene scene = grown();
  scene.reports.waits[0] = {.after = 1, .broken = true};
  scene.settle();
  CHECK(scene.removed.empty());
  scene.now += 16s;
  scene.leads_since = scene.now - 10s;  // a new operator may not have received all reports
  scene.settle();
  CHECK(scene.removed.empty());
  scene.leads_since = {};
  const Plan plan = scene.act();
  REQUIRE(plan.removals.size() == 1);
  CHECK(plan.removals[0].name == "job-u-0-1");
  CHECK(plan.removals[0].force);
  scene.settle();
  CHECK(scene.members() == Ids{"0-0"});
}

TEST_CASE("a program failure fails the job, and members that checkpoint and exit cause a restart") {
  LiveScene scene = grown();
  scene.end(1, PodEnd::kFailed);
  scene.now += 100s;
  scene.settle();
  CHECK(scene.phase() == "Failed");
  CHECK(scene.reason() == "PodFailure");
  CHECK(scene.text("message") == "replica 1: exited with code 1");
  CHECK_FALSE(scene.job["status"].contains("membership"));

  LiveScene other = grown();
  for (const int number : {0, 1}) other.end(number, PodEnd::kCheckpointed);
  other.act();
  CHECK(other.phase() == "Stopping");
  CHECK(other.reason() == "ReplicaStopped");
}

TEST_CASE("a job stops when another client deletes a member's pod") {
  LiveScene scene = grown();
  scene.pod(1).leaving = true;
  scene.act();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
}

TEST_CASE("a job continues without a member whose pod is force-deleted") {
  LiveScene scene = grown();
  scene.pod(1).leaving = scene.pod(1).killed = true;
  scene.act();
  CHECK(scene.phase() == "Running");
  CHECK(scene.members() == Ids{"0-0"});
}

TEST_CASE("a hung member is removed even if the members have never changed") {
  LiveScene scene({"a", "b"});
  scene.settle();
  scene.reports.waits[0] = {.after = 0, .broken = true};
  CHECK(scene.act().look_again);
  scene.now += 16s;
  scene.settle();
  CHECK(scene.removed == std::set<int>{1});
  CHECK(scene.members() == Ids{"0-0"});
}

TEST_CASE("a lost request to remove a hung member is repeated") {
  LiveScene scene = grown();
  scene.reports.waits[0] = {.after = 1, .broken = true};
  scene.settle();
  scene.now += 16s;
  for (int requests = 0; requests < 3; ++requests) {  // the requests are lost
    const Plan plan = scene.step();
    REQUIRE(plan.removals.size() == 1);
    CHECK(plan.removals[0].force);
  }
}

TEST_CASE("a member that has not trained yet and is being deleted does not block the others") {
  LiveScene scene = forming();
  scene.pod(1).leaving = true;
  scene.act();
  CHECK(scene.phase() == "Running");
  CHECK(scene.members() == Ids{"0-0"});
}

TEST_CASE("a failure after the loss of another replica restarts the job") {
  LiveScene scene = grown();
  scene.end(1, PodEnd::kLost);
  scene.settle();
  scene.now += 1s;
  scene.end(0, PodEnd::kFailed);
  scene.act();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
}

}  // namespace operator_member_loss_test
