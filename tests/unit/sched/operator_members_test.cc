// Tests how the operator changes the members of a running job whose program follows generations, and how the job ends.
#include <doctest/doctest.h>

#include <set>

#include "operator/jobs/job_status.h"
#include "operator_live_scene.h"

namespace operator_members_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

TEST_CASE("a job that already has its nodes does not change members") {
  LiveScene scene({"a", "b"});
  CHECK(scene.act().ranks.size() == 2);  // the fixture's pods lack the number of replicas
  scene.settle();
  CHECK_FALSE(scene.job["status"].contains("membership"));
  scene.decision = nodes({"a", "b"});
  scene.settle();
  CHECK_FALSE(scene.job["status"].contains("membership"));
  CHECK_FALSE(scene.generation);
  CHECK(scene.text("message") == "chosen");
}

TEST_CASE("a job grows while training: a newcomer joins once it is ready, and no pod is removed") {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.settle();
  CHECK(scene.phase() == "Running");
  CHECK(scene.allocation() == Allocation{"a", "b"});
  CHECK(scene.replicas() == 1);
  REQUIRE(scene.pods.size() == 2);
  CHECK(scene.pods[1].node == "b");
  CHECK_FALSE(scene.generation);
  // The newcomer loads while the job continues to train.
  scene.now += 10s;
  scene.settle();
  CHECK_FALSE(scene.generation);
  scene.wait(1);
  scene.settle();
  REQUIRE(scene.generation);
  CHECK(scene.generation->number == 1);
  CHECK(scene.members() == Ids{"0-0", "0-1"});
  CHECK(scene.generation->replicas[0].address == "10.0.0.0");
  CHECK(scene.generation->replicas[0].port == 47001);
  CHECK(scene.replicas() == 2);
  CHECK(scene.pod(1).rank == 1);
  CHECK(scene.pod(0).replicas == 2);
  scene.train();
  scene.settle();
  CHECK(scene.job["status"]["group"] == 0);
  CHECK(scene.removed.empty());
  CHECK(scene.events == Ids{"Rescaled: from 1 to 2 replicas"});
}

TEST_CASE("a job shrinks while training: a leaving replica exits by itself, and the others keep their order") {
  LiveScene scene({"a", "b", "c"});
  scene.decision = nodes({"a", "c"});
  scene.settle();
  CHECK(scene.members() == Ids{"0-0", "0-2"});
  CHECK(scene.allocation() == Allocation{"a", "c"});
  CHECK(scene.replicas() == 2);
  CHECK(scene.pod(2).rank == 1);
  CHECK(scene.removed.empty());
  scene.end(1, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Running");
  scene.train();
  scene.settle();
  CHECK(scene.removed == std::set<int>{1});  // only the pod that has ended
  CHECK(scene.phase() == "Running");
}

TEST_CASE("a leaving replica that does not exit after the others have resumed without it is removed") {
  LiveScene scene({"a", "b"});
  scene.decision = nodes({"a"});
  scene.settle();
  scene.train();
  scene.settle();
  CHECK(scene.removed.empty());
  scene.now += 31s;
  scene.settle();
  CHECK(scene.removed == std::set<int>{1});
}

TEST_CASE("a job moves to another node while training") {
  LiveScene scene({"a"});
  scene.decision = nodes({"b"});
  scene.settle();
  CHECK(scene.pods.size() == 2);
  scene.wait(1);
  scene.settle();
  CHECK(scene.members() == Ids{"0-0", "0-1"});  // the newcomer gets the states from the leaving replica
  scene.train();
  scene.settle();
  CHECK(scene.members() == Ids{"0-1"});
  CHECK(scene.generation->replicas[0].port == 47002);
  CHECK(scene.allocation() == Allocation{"b"});
  CHECK(scene.pod(1).rank == 0);
}

TEST_CASE("replica numbers are not reused within a group") {
  LiveScene scene = grown();
  scene.decision = nodes({"a"});
  scene.settle();
  scene.end(1, PodEnd::kSucceeded);
  scene.train();
  scene.settle();
  scene.erase(1);
  scene.decision = nodes({"a", "c"});
  scene.settle();
  CHECK(scene.pod(2).node == "c");
}

TEST_CASE("a job continues without newcomers that do not start in time and releases their node") {
  LiveScene scene({"a"});
  scene.settings.start_timeout = 60s;
  scene.decision = nodes({"a", "b"});
  scene.settle();
  for (int number = 1; number <= 3; ++number) {
    CHECK(scene.allocation() == Allocation{"a", "b"});
    CHECK(scene.pod(number).live());
    scene.now += 61s;
    scene.settle();
    CHECK(scene.removed.contains(number));
    scene.now += 15s;
    scene.settle();
  }
  CHECK(scene.phase() == "Running");
  CHECK(scene.allocation() == Allocation{"a"});
  CHECK(scene.replicas() == 1);
  CHECK(scene.pods.size() == 1);
  CHECK(scene.events.back() == "Rescaled: new replicas failed 3 times in a row: staying at 1 replica");
}

TEST_CASE("a newcomer whose pod is rejected or fails is replaced while the job keeps running") {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.step();
  scene.refusal = PodRefusal{1, true, "exceeded quota"};
  scene.act();
  scene.refusal.reset();
  CHECK(scene.phase() == "Running");
  scene.now += 1s;
  scene.settle();
  CHECK(scene.pod(2).node == "b");
  scene.end(2, PodEnd::kFailed);
  scene.settle();
  CHECK(scene.phase() == "Running");
  scene.now += 2s;
  scene.settle();
  scene.wait(3);
  scene.settle();
  CHECK(scene.members() == Ids{"0-0", "0-3"});
}

TEST_CASE("a leaving replica that has exited does not count as a member when the job stops") {
  LiveScene scene({"a", "b", "c"});
  scene.decision = nodes({"a", "c"});
  scene.settle();
  scene.end(1, PodEnd::kSucceeded);  // its annotation still contains rank 1
  scene.decision = JobDecision{{}, "waits: others need its nodes", true, ""};
  scene.act();
  CHECK(scene.phase() == "Stopping");
  scene.end(0, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Stopping");
  scene.end(2, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Succeeded");
}

TEST_CASE("a job that finishes while a newcomer is loading or joining succeeds") {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.settle();
  scene.end(0, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Succeeded");
  CHECK(scene.removed == std::set<int>{1});

  LiveScene listed({"a"});
  listed.decision = nodes({"a", "b"});
  listed.settle();
  listed.wait(1);
  listed.settle();
  listed.end(0, PodEnd::kSucceeded);
  listed.end(1, PodEnd::kFailed);  // no member is left to join
  listed.settle();
  CHECK(listed.phase() == "Succeeded");
}

TEST_CASE("a job does not succeed until a leaving replica that is still training has finished") {
  LiveScene scene({"a", "b"});
  scene.decision = nodes({"b"});
  scene.settle();
  scene.end(1, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Running");
  CHECK(scene.removed.empty());
  scene.end(0, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Succeeded");
}

TEST_CASE("a newcomer's pod that its node rejects is created at most three times") {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.settle();
  int created = 0;
  const Allocation wanted{"a", "b"};
  for (int seconds = 0; seconds < 600; seconds += 5, scene.now += 5s) {
    for (PodFacts& pod : scene.pods) {
      if (pod.node != "b" || !pod.live()) continue;
      ++created;
      pod = ended(pod, PodEnd::kLost);
    }
    if (seconds % 60 == 0) scene.decision = nodes(wanted);  // every cycle repeats the decision
    scene.settle();
  }
  CHECK(created == 3);
  CHECK(scene.allocation() == Allocation{"a"});
}

TEST_CASE("a job succeeds once all members have succeeded") {
  LiveScene scene = grown();
  scene.end(1, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Running");
  CHECK(scene.job["status"]["readyReplicas"] == 1);
  scene.end(0, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.phase() == "Succeeded");
}

TEST_CASE("a decision without nodes stops the job and force-deletes newcomers") {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.settle();
  scene.decision = JobDecision{{}, "waits: others need its nodes", true, ""};
  Plan plan = scene.act();
  CHECK(scene.phase() == "Stopping");
  plan = scene.act();
  for (const PodRemoval& removal : plan.removals) CHECK(removal.force == (removal.name == "job-u-0-1"));
  CHECK(scene.removed == std::set<int>{0, 1});
  scene.end(0, PodEnd::kCheckpointed);
  scene.erase(1);
  scene.settle();
  CHECK(scene.phase() == "Pending");
}

TEST_CASE("when a job stops, a leaving replica that is still training is not force-deleted") {
  LiveScene scene({"a", "b"});
  scene.decision = nodes({"a"});
  scene.settle();
  scene.decision = JobDecision{{}, "waits: others need its nodes", true, ""};
  scene.act();
  const Plan plan = scene.act();
  CHECK(plan.removals.size() == 2);
  for (const PodRemoval& removal : plan.removals) CHECK_FALSE(removal.force);
}

TEST_CASE("usage counts all running replicas, and attained service only members") {
  LiveScene scene({"a"});
  scene.usage_rate = [](const Allocation& nodes) {
    return UsageRate{.gpus = static_cast<double>(nodes.size()), .cost_per_hour = {}};
  };
  scene.settle();
  scene.decision = nodes({"a", "b"});
  scene.settle();
  scene.settle();
  CHECK(scene.job["status"]["usage"]["gpus"] == 2);
  scene.now += 100s;
  scene.wait(1);
  scene.settle();
  // One replica ran for 600 s before kNow and for 100 s after it.
  CHECK(attained_service(scene.job, scene.now) == doctest::Approx(700));
  scene.train();
  scene.now += 10s;
  CHECK(attained_service(scene.job, scene.now) == doctest::Approx(720));
  scene.decision = nodes({"b"});
  scene.settle();
  scene.end(0, PodEnd::kSucceeded);
  scene.settle();
  CHECK(scene.job["status"]["usage"]["gpus"] == 1);
  CHECK(scene.job["status"]["usage"]["gpuSeconds"].get<double>() == doctest::Approx(220));
}

}  // namespace operator_members_test
