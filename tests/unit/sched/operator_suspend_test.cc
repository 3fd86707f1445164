// Tests jobs that are suspended by spec.suspend, and resumed.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "kube/jobs/job_usage.h"
#include "operator/jobs/job_status.h"
#include "operator_cluster.h"
#include "operator_live_scene.h"

namespace operator_suspend_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;
using adaptdl::sched::testing::Cluster;

namespace {

constexpr const char* kWhy = "suspended by spec.suspend";

template <typename SceneType>
SceneType suspended(SceneType scene) {
  scene.job["spec"]["suspend"] = true;
  return scene;
}

void resume(Scene& scene) { scene.job["spec"]["suspend"] = false; }

bool waits_for_first_fit(const Scene& scene) {
  return adaptdl::sched::waits_for_first_fit(adaptdl::kube::parse_job(scene.job));
}

std::string condition(const Scene& scene, const std::string& type) {
  for (const json& each : adaptdl::kube::array_field(scene.job, {"status", "conditions"})) {
    if (adaptdl::kube::text_field(each, {"type"}) == type) return adaptdl::kube::text_field(each, {"status"});
  }
  return "none";
}

std::vector<std::string> reasons(const Plan& plan) {
  std::vector<std::string> all;
  for (const JobEvent& event : plan.events) {
    CHECK_FALSE(event.warning);
    all.push_back(event.reason);
  }
  return all;
}

// Returns a job that was suspended while it was running, and whose pods have ended.
Scene stopped() {
  Scene scene = suspended(running({"a", "b"}));
  scene.step();
  scene.pods.clear();
  scene.step();
  REQUIRE(scene.phase() == "Suspended");
  return scene;
}

}  // namespace

TEST_CASE("operator_suspend: a job that is created suspended gets no pods until it is resumed") {
  Scene scene = suspended(Scene());
  const Plan created = scene.step();
  CHECK(scene.phase() == "Suspended");
  CHECK(scene.reason() == "Suspended");
  CHECK(scene.text("message") == kWhy);
  CHECK(condition(scene, "Suspended") == "True");
  CHECK(reasons(created) == Ids{"Suspended"});
  CHECK(scene.plan().changes_nothing());
  CHECK_FALSE(waits_for_first_fit(scene));
  // The allocator may have decided before it learned of the suspension.
  scene.decision = nodes({"a"});
  CHECK(scene.plan().changes_nothing());

  scene.decision.reset();
  resume(scene);
  const Plan resumed = scene.step();
  CHECK(scene.phase() == "Pending");
  CHECK(scene.reason() == "Resumed");
  CHECK(condition(scene, "Suspended") == "False");
  CHECK(reasons(resumed) == Ids{"Resumed"});
  CHECK(waits_for_first_fit(scene));
  CHECK(scene.plan().changes_nothing());
  scene.decision = nodes({"a"});
  scene.step();
  CHECK(scene.phase() == "Starting");
  CHECK(scene.job["status"]["group"] == 0);
  CHECK(scene.plan().missing == std::vector<int>{0});
}

TEST_CASE("operator_suspend: a job that was never suspended has no Suspended condition") {
  Scene scene;
  scene.step();
  CHECK(condition(scene, "Allocated") == "False");
  CHECK(condition(scene, "Suspended") == "none");
}

TEST_CASE("operator_suspend: a suspended job stops like a preempted job and resumes in its next group") {
  Scene scene;
  SUBCASE("the job is running") { scene = running({"a", "b"}); }
  SUBCASE("the job is starting") { scene = starting({"a", "b"}); }
  SUBCASE("the job is not preemptible") {
    scene = running({"a", "b"});
    scene.job["spec"]["preemptible"] = false;
  }
  scene.job["status"]["retries"] = 2;
  scene.job["spec"]["suspend"] = true;
  scene.decision = nodes({"a", "b"});
  const Plan stop = scene.step();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "Suspended");
  CHECK(scene.allocation().empty());
  CHECK(reasons(stop) == Ids{"Suspended"});
  CHECK(condition(scene, "Suspended") == "none");
  const auto removals = scene.plan().removals;
  REQUIRE(removals.size() == 2);
  CHECK_FALSE(removals[0].force);
  // The pods have time to save.
  for (PodFacts& pod : scene.pods) pod = leaving(pod);
  scene.now += 1h;
  CHECK(scene.plan().changes_nothing());
  for (PodFacts& pod : scene.pods) pod = ended(pod, PodEnd::kCheckpointed);
  CHECK(reasons(scene.step()) == Ids{});
  CHECK(scene.phase() == "Suspended");
  CHECK(condition(scene, "Suspended") == "True");
  CHECK(scene.job["status"]["retries"] == 2);
  CHECK_FALSE(retry_after(scene.job));
  scene.pods.clear();
  scene.now += 100h;
  CHECK(scene.plan().changes_nothing());
  CHECK_FALSE(scene.plan().look_again);

  resume(scene);
  scene.step();
  CHECK(scene.phase() == "Pending");
  CHECK(waits_for_first_fit(scene));
  scene.decision = nodes({"c"});
  scene.step();
  CHECK(scene.phase() == "Starting");
  CHECK(scene.job["status"]["group"] == 1);
}

TEST_CASE("operator_suspend: a decision that arrives with the resumption starts the job or keeps it waiting") {
  Scene scene = stopped();
  resume(scene);
  SUBCASE("the decision has nodes") {
    scene.decision = nodes({"b"});
    CHECK(reasons(scene.step()) == Ids{"Resumed", "Starting"});
    CHECK(scene.phase() == "Starting");
    CHECK(scene.allocation() == Allocation{"b"});
  }
  SUBCASE("the decision has no nodes") {
    scene.decision = JobDecision{{}, "waits: others are before it", true, ""};
    scene.step();
    CHECK(scene.phase() == "Pending");
    CHECK(scene.reason() == "Waiting");
    CHECK_FALSE(waits_for_first_fit(scene));
  }
}

TEST_CASE("operator_suspend: a waiting job is suspended at once, and its timeout restarts when it resumes") {
  Scene scene = pending();
  scene.decision = JobDecision{{}, "waits: no node is large enough", false, ""};
  scene.step();
  REQUIRE(scene.reason() == "Unschedulable");
  scene.now += 9min;
  scene.job["spec"]["suspend"] = true;
  scene.step();
  CHECK(scene.phase() == "Suspended");
  CHECK(scene.text("message") == kWhy);
  scene.now += 10h;
  CHECK(scene.plan().changes_nothing());
  resume(scene);
  scene.decision = JobDecision{{}, "waits: no node is large enough", false, ""};
  const Plan plan = scene.step();
  CHECK(scene.phase() == "Pending");
  CHECK(plan.look_again == scene.now + 10min);
}

TEST_CASE("operator_suspend: a job that is being suspended does not fail because its pods cannot start") {
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

TEST_CASE("operator_suspend: a pause after failed starts still applies after the job is resumed") {
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

TEST_CASE("operator_suspend: a job that is suspended while stopping for another reason gets no nodes") {
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

TEST_CASE("operator_suspend: a job can be resumed while it is stopping") {
  Scene scene = suspended(running({"a", "b"}));
  scene.step();
  resume(scene);
  CHECK(reasons(scene.step()) == Ids{"Resumed"});
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "Resumed");
  CHECK(scene.plan().removals.size() == 2);
  SUBCASE("without a decision, it is queued") {
    scene.pods.clear();
    CHECK(reasons(scene.step()) == Ids{});
    CHECK(scene.phase() == "Pending");
    CHECK(scene.reason() == "Resumed");
    CHECK(waits_for_first_fit(scene));
    CHECK(condition(scene, "Suspended") == "none");
  }
  SUBCASE("with nodes, it starts") {
    scene.decision = nodes({"c"});
    scene.step();
    CHECK(scene.reason() == "Reallocated");
    scene.pods.clear();
    scene.step();
    CHECK(scene.phase() == "Starting");
    CHECK(scene.allocation() == Allocation{"c"});
  }
  SUBCASE("suspended again, it stays suspended") {
    scene.job["spec"]["suspend"] = true;
    CHECK(reasons(scene.step()) == Ids{"Suspended"});
    scene.pods.clear();
    scene.step();
    CHECK(scene.phase() == "Suspended");
  }
}

TEST_CASE("operator_suspend: a job is not Suspended while a node cannot confirm that its replica has ended") {
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

TEST_CASE("operator_suspend: a job that has ended or is ending cannot be suspended") {
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

TEST_CASE("operator_suspend: a suspended job that is being deleted does not change") {
  for (Scene scene : {stopped(), suspended(running({"a"}))}) {
    scene.job["metadata"]["deletionTimestamp"] = kTenSecondsAgo;
    CHECK(scene.plan().changes_nothing());
  }
}

TEST_CASE("operator_suspend: pods and an allocation that another client restores to a suspended job are removed") {
  Scene scene = stopped();
  scene.pods = {make_pod(0, "a")};
  CHECK(scene.plan().removals.size() == 1);
  scene.job["status"]["allocation"] = {"a"};
  scene.pods.clear();
  scene.step();
  CHECK(scene.phase() == "Suspended");
  CHECK(scene.allocation().empty());
}

TEST_CASE("operator_suspend: a non-boolean spec.suspend does not suspend a job") {
  for (const json& value : {json("true"), json(1), json(), json::object()}) {
    Scene scene = running({"a"});
    scene.job["spec"]["suspend"] = value;
    scene.step();
    CHECK(scene.phase() == "Running");
  }
}

TEST_CASE("operator_suspend: members that are forming a generation when the job is suspended finish it and save") {
  LiveScene scene = suspended(forming());
  scene.generation.reset();
  scene.settle();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "Suspended");
  CHECK(scene.members() == Ids{"0-0", "0-1"});
  CHECK(scene.removed == std::set<int>{0, 1});
  for (const int number : {0, 1}) scene.end(number, PodEnd::kCheckpointed);
  scene.settle();
  CHECK(scene.phase() == "Suspended");
  resume(scene);
  scene.decision = nodes({"a", "b"});
  scene.act();
  CHECK(scene.phase() == "Starting");
  CHECK(scene.job["status"]["group"] == 1);
  CHECK_FALSE(scene.job["status"].contains("membership"));
}

TEST_CASE("operator_suspend: a suspended job is charged only until its pods have ended") {
  Scene scene = running({"a", "b"});
  scene.usage_rate = [](const Allocation& nodes) { return UsageRate{static_cast<double>(nodes.size()), {}}; };
  scene.step();
  scene.job["spec"]["suspend"] = true;
  scene.step();
  scene.now += 30min;
  scene.pods.clear();
  scene.step();
  REQUIRE(scene.phase() == "Suspended");
  const auto usage = adaptdl::kube::parse_usage(scene.job);
  CHECK_FALSE(usage.since);
  CHECK(usage.gpu_hours(scene.now + 100h) == doctest::Approx(1));
  const double service = attained_service(scene.job, scene.now);
  scene.now += 100h;
  resume(scene);
  scene.step();
  CHECK(attained_service(scene.job, scene.now) == service);
  CHECK(adaptdl::kube::parse_usage(scene.job).gpu_hours(scene.now) == doctest::Approx(1));
}

TEST_CASE("operator_suspend: after a crash at any point, the next operator suspends and resumes the job") {
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

TEST_CASE("operator_suspend: random suspensions and crashes leave no job stuck and no suspended job with pods") {
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

}  // namespace operator_suspend_test
