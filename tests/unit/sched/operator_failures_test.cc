// Tests what fails a job, what restarts it, and when.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "operator/jobs/job_status.h"
#include "operator_scene.h"

namespace operator_failures_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

TEST_CASE("a deleted pod that exits with 143 is lost, even in a non-preemptible job") {
  Scene scene = running({"a", "a"});
  scene.job["spec"]["preemptible"] = false;
  scene.pods[1] = leaving(ended(scene.pods[1], PodEnd::kCheckpointed));
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
}

TEST_CASE("a job that restarts after some replicas have succeeded starts all replicas") {
  Scene scene = running({"a", "b"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kSucceeded);
  scene.pods[1] = ended(scene.pods[1], PodEnd::kLost);
  scene.step();
  CHECK(scene.phase() == "Stopping");
  scene.step();
  CHECK(scene.phase() == "Starting");
  scene.step();
  const Plan plan = scene.plan();
  CHECK(plan.missing == std::vector<int>{0, 1});
}

TEST_CASE("a job is restarted when a replica ends for a reason other than a program failure") {
  SUBCASE("an eviction") {
    Scene scene = running({"a", "b"});
    scene.pods[1] = ended(scene.pods[1], PodEnd::kLost);
    scene.step();
    CHECK(scene.reason() == "ReplicaLost");
    CHECK(scene.allocation() == Allocation{"a", "b"});
  }
  SUBCASE("a pod that is being deleted") {
    Scene scene = running({"a", "b"});
    scene.pods[1] = leaving(scene.pods[1]);
    scene.step();
    CHECK(scene.reason() == "ReplicaLost");
  }
  SUBCASE("a missing pod") {
    Scene scene = running({"a", "b"});
    scene.pods.pop_back();
    scene.step();
    CHECK(scene.reason() == "ReplicaLost");
  }
  SUBCASE("a replica that checkpointed and exited by itself") {
    Scene scene = running({"a", "b"});
    scene.pods[1] = ended(scene.pods[1], PodEnd::kCheckpointed);
    scene.step();
    CHECK(scene.reason() == "ReplicaStopped");
  }
  SUBCASE("an eviction that makes a peer fail") {
    Scene scene = running({"a", "b"});
    scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed);
    scene.pods[1] = ended(scene.pods[1], PodEnd::kLost);
    scene.step();
    CHECK(scene.reason() == "ReplicaLost");
  }
}

TEST_CASE("a program failure fails the job with the reason of the first failure") {
  Scene scene = running({"a", "a", "a"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed, kNow - 3s);
  scene.pods[2] = ended(scene.pods[2], PodEnd::kFailed, kNow - 5s);
  scene.pods[2].reason = "OOMKilled";
  scene.decision = nodes({"b"});  // must be ignored
  scene.step();
  CHECK(scene.phase() == "Failed");
  CHECK(scene.reason() == "OOMKilled");
  CHECK(scene.text("message") == "replica 2: exited with code 1");
  const auto removals = scene.plan().removals;  // the pods that have ended are kept for their logs
  REQUIRE(removals.size() == 1);
  CHECK(removals[0].uid == "uid-0-1");
}

TEST_CASE("a failure on an unhealthy device restarts the job, unless another replica failed first") {
  Scene scene = running({"a", "b"});
  scene.pods[1] = ended(scene.pods[1], PodEnd::kFailed, kNow - 50s);
  scene.pods[1].unhealthy_device = true;
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed, kNow - 40s);
  SUBCASE("the replica on the device failed first") {
    scene.step();
    CHECK(scene.phase() == "Stopping");
    CHECK(scene.reason() == "ReplicaLost");
  }
  SUBCASE("the other replica failed first") {
    scene.pods[0].ended = kNow - 60s;
    scene.step();
    CHECK(scene.phase() == "Failed");
    CHECK(scene.reason() == "PodFailure");
  }
}

TEST_CASE("exit code 143 fails a job that is not preemptible, unless the pod was lost") {
  Scene scene = running({"a"});
  scene.job["spec"]["preemptible"] = false;
  scene.pods[0] = ended(scene.pods[0], PodEnd::kCheckpointed);
  Scene evicted = scene;
  scene.step();
  CHECK(scene.phase() == "Failed");
  CHECK(scene.reason() == "PodFailure");
  evicted.pods[0].end = PodEnd::kLost;
  evicted.step();
  CHECK(evicted.phase() == "Stopping");
}

TEST_CASE("a failure fails the job only once the loss of a peer's node would have been detected") {
  Scene scene = running({"a", "b"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed, kNow - 5s);
  const Plan plan = scene.plan();
  CHECK(plan.changes_nothing());
  CHECK(plan.look_again == kNow + 85s);
  SUBCASE("the peer's node is down") {
    scene.nodes["b"] = NodeState::kNotReady;
    scene.step();
    CHECK(scene.phase() == "Stopping");
    CHECK(scene.reason() == "NodeLost");
  }
  SUBCASE("the peer's node stays up") {
    scene.now = kNow + 85s;
    scene.step();
    CHECK(scene.phase() == "Failed");
  }
  SUBCASE("the peer fails as well") {
    scene.pods[1] = ended(scene.pods[1], PodEnd::kFailed, kNow - 1s);
    scene.step();
    CHECK(scene.phase() == "Failed");
    CHECK(scene.text("message") == "replica 0: exited with code 1");
  }
}

TEST_CASE("a failure without a timestamp fails the job even while other replicas are running") {
  Scene scene = running({"a", "b"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed, std::nullopt);
  for (int i = 0; i < 5 && scene.phase() == "Running"; ++i, scene.now += 1h) scene.step();
  CHECK(scene.phase() == "Failed");
}

TEST_CASE("a failure in a stopping job is ignored, and the job is restarted") {
  Scene scene = stopping({"a", "b"}, {"c"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed);
  scene.pods[1] = ended(scene.pods[1], PodEnd::kCheckpointed);
  scene.step();
  CHECK(scene.phase() == "Starting");
  CHECK(scene.allocation() == Allocation{"c"});
}

TEST_CASE("consecutive failed starts are retried after increasing pauses of at most 5 minutes") {
  Scene scene = running({"a"}, kTenSecondsAgo);
  std::vector<std::chrono::seconds> pauses;
  for (int i = 0; i < 9; ++i) {
    scene.pods = {ended(make_pod(0, "a", scene.job["status"]["group"]), PodEnd::kLost)};
    scene.step();
    REQUIRE(scene.phase() == "Stopping");
    const auto hold = retry_after(scene.job);
    pauses.push_back(hold ? std::chrono::duration_cast<std::chrono::seconds>(*hold - scene.now) : 0s);
    if (hold) {
      scene.step();
      CHECK(scene.phase() == "Pending");
      scene.decision = nodes({"a"});
      CHECK(scene.step().look_again == hold);  // a decision during the pause is ignored
      CHECK(scene.phase() == "Pending");
      scene.now = *hold;
      scene.decision = nodes({"a"});
    }
    scene.step();
    REQUIRE(scene.phase() == "Starting");
    CHECK_FALSE(retry_after(scene.job));
  }
  CHECK(pauses == std::vector<std::chrono::seconds>{0s, 10s, 20s, 40s, 80s, 160s, 300s, 300s, 300s});
}

TEST_CASE("the end of a retry pause is recorded in the status") {
  Scene scene = pending();
  scene.job["status"]["retryAfter"] = adaptdl::kube::to_string(kNow + 10s);
  CHECK(scene.plan().look_again == kNow + 10s);
  CHECK(scene.plan().changes_nothing());
  scene.now += 10s;
  CHECK_FALSE(scene.step().changes_nothing());
  CHECK_FALSE(retry_after(scene.job));
  CHECK(scene.plan().changes_nothing());
}

TEST_CASE("the loss of a replica after a long run resets the number of retries, but a reallocation does not") {
  Scene scene = running({"a"}, kTenMinutesAgo);
  scene.job["status"]["retries"] = 5;
  SUBCASE("a loss after ten minutes") {
    scene.pods[0] = ended(scene.pods[0], PodEnd::kLost);
    scene.step();
    CHECK(scene.job["status"]["retries"] == 0);
    CHECK_FALSE(retry_after(scene.job));
  }
  SUBCASE("a reallocation") {
    scene.decision = nodes({"b"});
    scene.step();
    CHECK(scene.job["status"]["retries"] == 5);
    CHECK_FALSE(retry_after(scene.job));
  }
}

TEST_CASE("a job that pauses before a retry releases its nodes") {
  Scene scene = running({"a"}, kTenSecondsAgo);
  scene.job["status"]["retries"] = 1;
  scene.pods[0] = leaving(scene.pods[0]);
  scene.step();
  REQUIRE(scene.phase() == "Stopping");
  REQUIRE(retry_after(scene.job));
  // The pods end after the pause. By then, the allocator may have given their nodes to other jobs.
  scene.now = *retry_after(scene.job) + 10s;
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Pending");
}

TEST_CASE("a job whose pod exceeds a quota is paused, and a job whose pod is rejected for another reason fails") {
  Scene scene = starting({"a", "b"});
  scene.pods.pop_back();
  Scene other = scene;
  scene.refusal = PodRefusal{{}, true, "exceeded quota: few"};
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "QuotaExceeded");
  CHECK(scene.allocation().empty());
  CHECK(retry_after(scene.job) == kNow + 10s);
  scene.refusal.reset();
  CHECK(scene.plan().removals.size() == 1);
  other.refusal = PodRefusal{{}, false, "spec.containers: Required value"};
  other.step();
  CHECK(other.phase() == "Failed");
  CHECK(other.reason() == "PodRefused");
  CHECK(other.text("message") == "spec.containers: Required value");
}

TEST_CASE("a job whose pods cannot start fails after the start timeout") {
  const std::map<PodTrouble, std::string> reasons{{PodTrouble::kImage, "ImagePullFailed"},
                                                  {PodTrouble::kContainer, "ContainerFailed"},
                                                  {PodTrouble::kVolume, "VolumeUnavailable"}};
  for (const auto& [trouble, reason] : reasons) {
    Scene scene = starting({"a", "b"});
    scene.pods[1] = troubled(scene.pods[1], trouble);
    const Plan plan = scene.step();
    REQUIRE(plan.look_again == kNow + scene.settings.start_timeout);
    CHECK(scene.phase() == "Starting");
    scene.now = *plan.look_again;
    scene.step();
    CHECK(scene.phase() == "Failed");
    CHECK(scene.reason() == reason);
    CHECK(scene.text("message") == "replica 1: the problem");
  }
}

TEST_CASE("a job whose pods remain unscheduled for the start timeout stops and releases its nodes") {
  Scene scene = starting({"a"}, kTenMinutesAgo);
  scene.pods[0] = troubled(make_pod(0, ""), PodTrouble::kUnscheduled);
  scene.step();
  CHECK(scene.phase() == "Starting");  // the timeout starts with the problem, not with the group
  scene.now += scene.settings.start_timeout - 1s;
  SUBCASE("the problem disappears and recurs") {
    scene.pods[0] = troubled(make_pod(0, ""), PodTrouble::kNone);
    scene.step();
    scene.pods[0] = troubled(make_pod(0, ""), PodTrouble::kUnscheduled);
    scene.now += 1s;
    scene.step();
    CHECK(scene.phase() == "Starting");
    return;
  }
  scene.now += 1s;
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "Unschedulable");
  CHECK(scene.allocation().empty());
}

TEST_CASE("until all pods have been created, a missing pod is created in the same group") {
  Scene scene = starting({"a", "b"});
  scene.pods.erase(scene.pods.begin());
  const Plan plan = scene.step();
  CHECK(plan.missing == std::vector<int>{0});
  CHECK(scene.phase() == "Starting");
}

TEST_CASE("once all pods have been created, a missing pod restarts the job") {
  Scene scene = starting({"a", "b"});
  scene.step();
  CHECK(scene.job["status"]["createdGroup"] == 0);
  scene.pods.erase(scene.pods.begin());
  CHECK(scene.step().missing.empty());
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
}

TEST_CASE("an unplaceable job fails after the timeout once the allocator confirms that the job fits nowhere") {
  Scene scene = pending();
  const JobDecision no{{}, "waits: no node has 8 GPUs", false};
  scene.decision = no;
  scene.step();
  CHECK(scene.reason() == "Unschedulable");
  scene.decision = no;
  scene.now += scene.settings.unschedulable_timeout - 1s;
  scene.step();
  CHECK(scene.phase() == "Pending");
  scene.now += 2s;
  SUBCASE("the allocator confirms it") {
    scene.decision = no;
    scene.step();
    CHECK(scene.phase() == "Failed");
    CHECK(scene.reason() == "Unschedulable");
    CHECK(scene.text("message") == "no node has 8 GPUs");
  }
  SUBCASE("the allocator has not decided yet after an operator outage") {
    scene.now += 1h;
    scene.step();
    CHECK(scene.phase() == "Pending");
    scene.decision = nodes({"a"});
    scene.step();
    CHECK(scene.phase() == "Starting");
    CHECK_FALSE(scene.job["status"].contains("unplaceableSince"));
  }
  SUBCASE("the job would fit now but must wait") {
    scene.decision = JobDecision{{}, "waits: others are before it", true};
    scene.step();
    CHECK(scene.phase() == "Pending");
    CHECK_FALSE(scene.job["status"].contains("unplaceableSince"));
  }
  SUBCASE("no timeout is set") {
    scene.settings.unschedulable_timeout = 0s;
    scene.decision = no;
    scene.step();
    CHECK(scene.phase() == "Pending");
  }
}

}  // namespace operator_failures_test
