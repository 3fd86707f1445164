// Tests jobs that are suspended by spec.suspend, and resumed.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "kube/api/json_fields.h"
#include "kube/jobs/job_usage.h"
#include "operator/jobs/job_status.h"
#include "operator_live_scene.h"
#include "operator_suspend_support.h"

namespace operator_suspend_test {

using namespace operator_suspend_support;

namespace {

constexpr const char* kWhy = "suspended by spec.suspend";

std::string condition(const Scene& scene, const std::string& type) {
  for (const json& each : adaptdl::kube::array_field(scene.job, {"status", "conditions"})) {
    if (adaptdl::kube::text_field(each, {"type"}) == type) return adaptdl::kube::text_field(each, {"status"});
  }
  return "none";
}

}  // namespace

TEST_CASE("a job that is created suspended gets no pods until it is resumed") {
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

TEST_CASE("a job that was never suspended has no Suspended condition") {
  Scene scene;
  scene.step();
  CHECK(condition(scene, "Allocated") == "False");
  CHECK(condition(scene, "Suspended") == "none");
}

TEST_CASE("a suspended job stops like a preempted job and resumes in its next group") {
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

TEST_CASE("a decision that arrives with the resumption starts the job or keeps it waiting") {
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

TEST_CASE("a waiting job is suspended at once, and its timeout restarts when it resumes") {
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

TEST_CASE("a job can be resumed while it is stopping") {
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

TEST_CASE("a suspended job that is being deleted does not change") {
  for (Scene scene : {stopped(), suspended(running({"a"}))}) {
    scene.job["metadata"]["deletionTimestamp"] = kTenSecondsAgo;
    CHECK(scene.plan().changes_nothing());
  }
}

TEST_CASE("a non-boolean spec.suspend does not suspend a job") {
  for (const json& value : {json("true"), json(1), json(), json::object()}) {
    Scene scene = running({"a"});
    scene.job["spec"]["suspend"] = value;
    scene.step();
    CHECK(scene.phase() == "Running");
  }
}

TEST_CASE("if a job is suspended while its members form a generation, they finish it and save a checkpoint") {
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

TEST_CASE("a suspended job is charged only until its pods have ended") {
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

}  // namespace operator_suspend_test
