// Tests single decisions of the life cycle. Sequences with crashes are tested in operator_crashes_test.cc.
#include "operator/lifecycle.h"

#include <doctest/doctest.h>

#include <map>

#include "kube/json_fields.h"

using namespace adaptdl::sched;
using namespace std::chrono_literals;
using adaptdl::kube::parse_time;
using adaptdl::kube::Time;
using nlohmann::json;

namespace {

const Time kNow = *parse_time("2026-11-21T12:10:00Z");
constexpr const char* kTenMinutesAgo = "2026-11-21T12:00:00Z";
constexpr const char* kTenSecondsAgo = "2026-11-21T12:09:50Z";

PodFacts make_pod(int rank, const std::string& node, int group = 0) {
  PodFacts pod{.name = "job-u-" + std::to_string(group) + '-' + std::to_string(rank), .node = node};
  pod.uid = "uid-" + std::to_string(group) + '-' + std::to_string(rank);
  pod.ip = "10.0.0." + std::to_string(10 * group + rank);
  pod.group = group;
  pod.rank = rank;
  pod.running = true;
  return pod;
}

PodFacts ended(PodFacts pod, PodEnd end, std::optional<Time> when = kNow - 5s) {
  pod.running = false;
  pod.end = end;
  pod.ended = when;
  pod.message = end == PodEnd::kFailed ? "exited with code 1" : "";
  if (end == PodEnd::kFailed) pod.reason = "PodFailure";
  return pod;
}

PodFacts leaving(PodFacts pod) {
  pod.leaving = true;
  return pod;
}

PodFacts troubled(PodFacts pod, PodTrouble trouble) {
  pod.running = false;
  pod.trouble = trouble;
  pod.message = "the problem";
  return pod;
}

// A job with its pods in a cluster of nodes a, b and c.
struct Scene {
  json job{{"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", "u"}}},
           {"spec", {{"maxReplicas", 8}}},
           {"status", json::object()}};
  std::vector<PodFacts> pods;
  std::optional<JobDecision> decision;
  std::optional<PodRefusal> refusal;
  std::map<std::string, NodeState> nodes{{"a", NodeState::kReady}, {"b", NodeState::kReady}, {"c", NodeState::kReady}};
  Time now = kNow;
  LifecycleSettings settings;

  Plan plan() const {
    const auto state = [this](const std::string& name) {
      const auto found = nodes.find(name);
      return found == nodes.end() ? NodeState::kGone : found->second;
    };
    return plan_job({job, pods, decision, refusal, json(), state, now}, settings);
  }
  // Applies the planned status, and clears the decision.
  Plan step() {
    Plan planned = plan();
    if (!planned.status.is_null()) job["status"].merge_patch(planned.status);
    decision.reset();
    return planned;
  }
  std::string text(const char* name) const { return adaptdl::kube::text_field(job, {"status", name}); }
  std::string phase() const { return text("phase"); }
  std::string reason() const { return text("reason"); }
  Allocation allocation() const { return job["status"]["allocation"].get<Allocation>(); }
};

// A job whose group 0 runs on these nodes.
Scene running(const Allocation& nodes, const char* since = kTenMinutesAgo) {
  Scene scene;
  scene.job["status"] = {{"phase", "Running"}, {"phaseSince", since},      {"allocation", nodes},
                         {"group", 0},         {"replicas", nodes.size()}, {"reason", "Allocated"}};
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    scene.pods.push_back(make_pod(static_cast<int>(rank), nodes[rank]));
  return scene;
}

Scene starting(const Allocation& nodes, const char* since = kTenSecondsAgo) {
  Scene scene = running(nodes, since);
  scene.job["status"]["phase"] = "Starting";
  return scene;
}

Scene stopping(const Allocation& nodes, const Allocation& next) {
  Scene scene = running(nodes, kTenSecondsAgo);
  scene.job["status"]["phase"] = "Stopping";
  scene.job["status"]["allocation"] = next;
  return scene;
}

Scene pending() {
  Scene scene;
  scene.job["status"] = {{"phase", "Pending"}, {"phaseSince", kTenSecondsAgo}};
  return scene;
}

JobDecision nodes(const Allocation& allocation) { return {allocation, "chosen", true}; }

}  // namespace

TEST_CASE("a new job waits for nodes, starts when it gets them, and runs when all of its pods run") {
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

TEST_CASE("the addresses of a group are reported when all of them are known") {
  Scene scene = starting({"a", "b"});
  scene.pods[1].ip.clear();
  CHECK(scene.plan().addresses.empty());
  scene.pods[1].ip = "10.0.0.7";
  CHECK(scene.plan().addresses == std::vector<std::string>{"10.0.0.0", "10.0.0.7"});
}

TEST_CASE("no group starts while a pod of another group may still run") {
  SUBCASE("of a pending job") {
    Scene scene = pending();
    scene.pods = {make_pod(0, "a", 3)};
    scene.decision = nodes({"b"});
    CHECK(scene.step().removals.size() == 1);
    CHECK(scene.phase() == "Pending");
  }
  SUBCASE("of a stopping job") {
    Scene scene = stopping({"a", "b"}, {"c"});
    scene.pods[0] = ended(scene.pods[0], PodEnd::kCheckpointed);
    scene.pods[1] = leaving(scene.pods[1]);
    CHECK(scene.plan().changes_nothing());
    scene.pods[1] = ended(scene.pods[1], PodEnd::kCheckpointed);
    scene.step();
    CHECK(scene.phase() == "Starting");
    CHECK(scene.job["status"]["group"] == 1);
  }
  SUBCASE("that is reported late") {
    Scene scene = starting({"a", "b"});
    scene.job["status"]["group"] = 1;
    const Plan plan = scene.plan();
    CHECK(plan.missing.empty());
    CHECK(plan.removals.size() == 2);
    CHECK(plan.addresses.empty());
  }
  SUBCASE("on a node that is not ready") {
    Scene scene = stopping({"a"}, {"b"});
    scene.pods[0] = leaving(scene.pods[0]);
    scene.nodes["a"] = NodeState::kNotReady;
    scene.decision = nodes({"c"});
    const Plan plan = scene.step();
    CHECK(plan.removals.empty());
    CHECK(plan.look_again == kNow + 10s);
    CHECK(scene.phase() == "Stopping");
    CHECK(scene.reason() == "NodeLost");
    CHECK(scene.allocation().empty());  // they would be idle
    CHECK(scene.plan().changes_nothing());
  }
}

TEST_CASE("a deleted pod that exits with 143 is lost, even if the job is not preemptible") {
  Scene scene = running({"a", "a"});
  scene.job["spec"]["preemptible"] = false;
  scene.pods[1] = leaving(ended(scene.pods[1], PodEnd::kCheckpointed));
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
}

TEST_CASE("a job whose node is not ready is reconciled again, because no event reports that the node is gone") {
  Scene scene = running({"a", "b"});
  scene.nodes["b"] = NodeState::kNotReady;
  CHECK(scene.step().look_again == kNow + 10s);
  CHECK(scene.phase() == "Running");
  CHECK(scene.plan().changes_nothing());
}

TEST_CASE("a pod is deleted once, and by force only if its node is gone") {
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

TEST_CASE("a job succeeds when all replicas have exited with 0, even while it stops, and its pods are kept") {
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

TEST_CASE("a restart after some replicas have succeeded starts all replicas") {
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

TEST_CASE("an end that the program did not cause restarts the job on its nodes") {
  SUBCASE("an eviction") {
    Scene scene = running({"a", "b"});
    scene.pods[1] = ended(scene.pods[1], PodEnd::kLost);
    scene.step();
    CHECK(scene.reason() == "ReplicaLost");
    CHECK(scene.allocation() == Allocation{"a", "b"});
  }
  SUBCASE("a requested deletion") {
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

TEST_CASE("a failure of the program fails the job, with the reason of the first failure") {
  Scene scene = running({"a", "a", "a"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed, kNow - 3s);
  scene.pods[2] = ended(scene.pods[2], PodEnd::kFailed, kNow - 5s);
  scene.pods[2].reason = "OOMKilled";
  scene.decision = nodes({"b"});  // is ignored
  scene.step();
  CHECK(scene.phase() == "Failed");
  CHECK(scene.reason() == "OOMKilled");
  CHECK(scene.text("message") == "replica 2 exited with code 1");
  const auto removals = scene.plan().removals;  // only the running pod; the others are kept for their logs
  REQUIRE(removals.size() == 1);
  CHECK(removals[0].uid == "uid-0-1");
}

TEST_CASE("exit code 143 fails a job that is not preemptible, unless something else ended the pod") {
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

TEST_CASE("a failure counts only after the time in which the loss of a node would be detected") {
  Scene scene = running({"a", "b"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed, kNow - 5s);
  const Plan plan = scene.plan();
  CHECK(plan.changes_nothing());
  CHECK(plan.look_again == kNow + 85s);
  SUBCASE("the node is down") {
    scene.nodes["b"] = NodeState::kNotReady;
    scene.step();
    CHECK(scene.phase() == "Stopping");
    CHECK(scene.reason() == "NodeLost");
  }
  SUBCASE("the node is not down") {
    scene.now = kNow + 85s;
    scene.step();
    CHECK(scene.phase() == "Failed");
  }
  SUBCASE("the peer fails as well, so there is nothing to wait for") {
    scene.pods[1] = ended(scene.pods[1], PodEnd::kFailed, kNow - 1s);
    scene.step();
    CHECK(scene.phase() == "Failed");
    CHECK(scene.text("message") == "replica 0 exited with code 1");
  }
}

TEST_CASE("a failure without a time fails the job while peers still run") {
  Scene scene = running({"a", "b"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed, std::nullopt);
  for (int i = 0; i < 5 && scene.phase() == "Running"; ++i, scene.now += 1h) scene.step();
  CHECK(scene.phase() == "Failed");
}

TEST_CASE("a failure in a stopping job does not count, and the job is restarted") {
  Scene scene = stopping({"a", "b"}, {"c"});
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed);
  scene.pods[1] = ended(scene.pods[1], PodEnd::kCheckpointed);
  scene.step();
  CHECK(scene.phase() == "Starting");
  CHECK(scene.allocation() == Allocation{"c"});
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
  SUBCASE("it starts with the latest decision") {
    scene.decision = nodes({"b"});
    scene.step();
    scene.pods.clear();
    scene.step();
    CHECK(scene.phase() == "Starting");
    CHECK(scene.allocation() == Allocation{"b"});
  }
  SUBCASE("it waits if its nodes are gone by then") {
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
      CHECK(scene.step().look_again == hold);  // a decision during the pause starts nothing
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

TEST_CASE("the end of a pause changes the status, which wakes the allocator") {
  Scene scene = pending();
  scene.job["status"]["retryAfter"] = adaptdl::kube::to_string(kNow + 10s);
  CHECK(scene.plan().look_again == kNow + 10s);
  CHECK(scene.plan().changes_nothing());
  scene.now += 10s;
  CHECK_FALSE(scene.step().changes_nothing());
  CHECK_FALSE(retry_after(scene.job));
  CHECK(scene.plan().changes_nothing());
}

TEST_CASE("a group that ran for a minute ends the series of failed starts, and reallocations do not count") {
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

TEST_CASE("a paused job releases its nodes") {
  Scene scene = running({"a"}, kTenSecondsAgo);
  scene.job["status"]["retries"] = 1;
  scene.pods[0] = leaving(scene.pods[0]);
  scene.step();
  REQUIRE(scene.phase() == "Stopping");
  REQUIRE(retry_after(scene.job));
  // Its pods end after the pause. The allocator may have given its nodes to other jobs by then.
  scene.now = *retry_after(scene.job) + 10s;
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Pending");
}

TEST_CASE("a pod that exceeds a quota pauses the job, and any other refusal fails it") {
  Scene scene = starting({"a", "b"});
  scene.pods.pop_back();
  Scene other = scene;
  scene.refusal = PodRefusal{true, "exceeded quota: few"};
  scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "QuotaExceeded");
  CHECK(scene.allocation().empty());
  CHECK(retry_after(scene.job) == kNow + 10s);
  scene.refusal.reset();
  CHECK(scene.plan().removals.size() == 1);
  other.refusal = PodRefusal{false, "spec.containers: Required value"};
  other.step();
  CHECK(other.phase() == "Failed");
  CHECK(other.reason() == "PodRefused");
  CHECK(other.text("message") == "spec.containers: Required value");
}

TEST_CASE("pods that cannot start fail the job after the start timeout") {
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

TEST_CASE("pods that are not scheduled within the start timeout cause a reallocation") {
  Scene scene = starting({"a"}, kTenMinutesAgo);
  scene.pods[0] = troubled(make_pod(0, ""), PodTrouble::kUnscheduled);
  scene.step();
  CHECK(scene.phase() == "Starting");  // the timeout begins with the problem, not with the start
  scene.now += scene.settings.start_timeout - 1s;
  SUBCASE("unless the problem ends in between") {
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

TEST_CASE("a pod that is missing before all pods were created is created in the same group") {
  Scene scene = starting({"a", "b"});
  scene.pods.erase(scene.pods.begin());
  const Plan plan = scene.step();
  CHECK(plan.missing == std::vector<int>{0});
  CHECK(scene.phase() == "Starting");
}

TEST_CASE("a pod that is deleted after all pods were created restarts the job") {
  Scene scene = starting({"a", "b"});
  scene.step();
  CHECK(scene.job["status"]["createdGroup"] == 0);
  scene.pods.erase(scene.pods.begin());
  CHECK(scene.step().missing.empty());
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "ReplicaLost");
}

TEST_CASE("a job that the nodes could not hold fails after the timeout, if the allocator confirms it") {
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
  SUBCASE("the allocator has not decided yet, because the operator was down") {
    scene.now += 1h;
    scene.step();
    CHECK(scene.phase() == "Pending");
    scene.decision = nodes({"a"});
    scene.step();
    CHECK(scene.phase() == "Starting");
    CHECK_FALSE(scene.job["status"].contains("unplaceableSince"));
  }
  SUBCASE("the job fits now, and must wait") {
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

TEST_CASE("an invalid status neither crashes the operator nor leaves the job without pods") {
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

TEST_CASE("a pod with a missing or wrong group or rank is removed") {
  Scene scene = running({"a"});
  for (const auto& [group, rank] : {std::pair(-1, -1), std::pair(0, 1), std::pair(1, 0), std::pair(0, -1)}) {
    PodFacts other = make_pod(7, "b");
    other.group = group;
    other.rank = rank;
    scene.pods.resize(1);
    scene.pods.push_back(other);
    const auto removals = scene.plan().removals;
    REQUIRE(removals.size() == 1);
    CHECK(removals[0].uid == "uid-0-7");
  }
}
