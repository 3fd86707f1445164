// Tests when the operator restarts a job instead of changing its members, and how a new operator continues a change:
// from the stored membership and the reports of replicas.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "operator/jobs/membership_status.h"
#include "operator/jobs/replica_reports.h"
#include "operator_live_scene.h"

namespace operator_members_restart_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

TEST_CASE("a job whose members have changed is restarted when live rescale is disabled") {
  LiveScene scene = grown();
  scene.settings.live_rescale = false;
  scene.act();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.text("message") == "live rescale was disabled");
  CHECK(scene.allocation() == Allocation{"a", "b"});
}

TEST_CASE("a new operator waits for a job's reports before it restarts the job to change its replicas") {
  LiveScene scene({"a"});
  scene.reports.trains = -1;
  scene.leads_since = scene.now - 5s;
  scene.decision = nodes({"a", "b"});
  scene.act();
  CHECK(scene.phase() == "Running");
}

TEST_CASE("a new operator does not wait for a program that has never sent a report") {
  LiveScene scene({"a"});
  scene.hints = nullptr;
  scene.reports.trains = -1;
  scene.leads_since = scene.now - 5s;
  scene.decision = nodes({"a", "b"});
  scene.act();
  CHECK(scene.phase() == "Stopping");
}

TEST_CASE("a newly started job without reports is not restarted to change its replicas if the change can wait") {
  Scene scene = running({"a"}, kTenSecondsAgo);
  scene.decision = nodes({"a", "b"});
  CHECK(scene.plan().status["phase"] == "Stopping");
  scene.settings.live_rescale = true;
  CHECK_FALSE(scene.plan().status.contains("phase"));
  scene.hints = {{"initBatchSize", 8}};  // the program reports nothing about generations
  CHECK(scene.plan().status["phase"] == "Stopping");
  // The hint may be from the previous group.
  scene.hints = {{"liveRescale", true}};
  CHECK_FALSE(scene.plan().status.contains("phase"));
  CHECK(scene.plan().addresses.size() == 1);
  scene.hints = nullptr;
  scene.now += 60s;
  CHECK(scene.plan().status["phase"] == "Stopping");
  scene.now = kNow;
  scene.nodes["a"] = NodeState::kLeaving;
  CHECK(scene.plan().status["phase"] == "Stopping");
  scene.nodes["a"] = NodeState::kReady;
  scene.decision = nodes({});
  CHECK(scene.plan().status["phase"] == "Stopping");
}

TEST_CASE("a program that no longer supports live rescale is restarted to change its replicas") {
  LiveScene scene = grown();
  scene.hints = {{"liveRescale", false}};
  scene.settle();
  CHECK(scene.phase() == "Running");
  scene.decision = nodes({"a", "b", "c"});
  scene.act();
  CHECK(scene.phase() == "Stopping");
  CHECK(scene.reason() == "Reallocated");
  CHECK(scene.allocation() == Allocation{"a", "b", "c"});
}

TEST_CASE("a new operator continues a change of members that is recorded in the status") {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.settle();
  scene.reports = {};  // no report has been received yet
  scene.settle();
  CHECK(scene.pods.size() == 2);
  scene.wait(1);
  scene.reports.trains = 0;
  scene.settle();
  CHECK(scene.members() == Ids{"0-0", "0-1"});
  // A new operator announces the current generation again.
  scene.generation.reset();
  scene.reports = {};
  scene.act();
  CHECK(scene.members() == Ids{"0-0", "0-1"});
}

TEST_CASE("an invalid membership in the status restarts the job") {
  const LiveScene before = grown();
  const auto check = [&](const char* path, const json& value) {
    CAPTURE(path);
    LiveScene scene = before;
    scene.job["status"]["membership"][json::json_pointer(path)] = value;
    scene.act();
    CHECK(scene.phase() == "Stopping");
    CHECK(scene.text("message") == "status.membership is invalid");
  };
  check("/replicas/0/number", "x");
  check("/replicas/0/number", -1);
  check("/replicas/0/number", before.job["status"]["membership"]["replicas"][1]["number"]);
  check("/replicas/0/trains", 9.3e18);
  check("/replicas", json(10'000, before.job["status"]["membership"]["replicas"][0]));
  check("/generation", 2'000'000'000);
  check("/next", 1);
  check("/next", -5);
}

TEST_CASE("a stored membership is read as it was written, and an invalid one is rejected") {
  StoredMembership stored;
  const auto at = membership_time(kNow);
  stored.state = {
      .generation = 3,
      .next = 7,
      .replicas = {{.number = 2, .device = "a", .role = MembershipState::Role::kMember, .trains = 3, .trained = true},
                   {.number = 5,
                    .device = "b",
                    .role = MembershipState::Role::kLoading,
                    .started = at,
                    .killed = true,
                    .late = true},
                   {.number = 6, .device = "c", .role = MembershipState::Role::kWaiting, .started = at, .broken = true},
                   {.number = 1, .device = "d", .role = MembershipState::Role::kLeaving, .leave_by = at}},
      .broken_since = at,
      .finished_at = at + 2s,
      .regroup = true,
      .incomplete = true,
      .can_join = false,
      .start_after = at + 1s,
      .newcomer_failures = 2,
      .noticed = "text"};
  stored.back_off = {.pause = 500ms, .failed_at = at};
  const json job{{"status", {{"membership", to_json(stored)}}}};
  CHECK(parse_membership(job) == stored);
  CHECK(parse_membership({{"status", {{"membership", to_json({})}}}}) == StoredMembership());
  CHECK_FALSE(parse_membership({{"status", json::object()}}));
  for (const char* wrong :
       {"[]", "{}", R"({"generation": 1, "next": 1, "replicas": [{"number": 1, "node": "a", "role": "x"}]})",
        R"({"generation": 1, "next": 1, "replicas": [], "startAfter": 5})"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_membership({{"status", {{"membership", json::parse(wrong)}}}}), adaptdl::Error);
  }
}

TEST_CASE("replica reports are kept only for the current group") {
  ReplicaReportStore store;
  CHECK(store.waits("ns/job", "0-3", 0, false));
  CHECK_FALSE(store.waits("ns/job", "0-3", 0, false));
  CHECK(store.waits("ns/job", "0-3", 0, true));
  CHECK(store.follows("ns/job", 1));
  CHECK_FALSE(store.follows("ns/job", 1));
  CHECK_FALSE(store.waits("ns/job", "not an id", 0, false));
  CHECK(store.of("ns/job", 0).waits.at(3).broken);
  CHECK(store.of("ns/job", 0).trains == 1);
  CHECK(store.of("ns/other", 0).waits.empty());
  CHECK(store.of("ns/job", 1).waits.empty());
  CHECK(store.of("ns/job", 1).trains == -1);
  CHECK_FALSE(store.waits("ns/job", "0-3", 0, false));  // an ID of an earlier group
  CHECK(store.waits("ns/job", "1-3", 0, false));
  store.forget("ns/job");
  CHECK(store.of("ns/job", 1).waits.empty());
}

}  // namespace operator_members_restart_test
