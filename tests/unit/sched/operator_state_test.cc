// Tests the operator's cache of the cluster.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "kube/api/json_fields.h"
#include "operator/cluster/cluster_state.h"
#include "operator_state_support.h"

namespace operator_state_test {

using namespace adaptdl::sched;
using namespace operator_state_support;

namespace {

json make_pod(const std::string& uid, const std::string& owner, int version = 20,
              const std::string& phase = "Running") {
  json pod{
      {"metadata", {{"namespace", "ns"}, {"name", uid}, {"uid", uid}, {"resourceVersion", std::to_string(version)}}},
      {"spec", {{"nodeName", "a"}, {"containers", {{{"name", "main"}, {"resources", {{"limits", {{"gpu", 2}}}}}}}}}},
      {"status", {{"phase", phase}}}};
  if (owner.empty()) return pod;
  pod["metadata"]["labels"] = {{"adaptdl", "true"}};
  pod["metadata"]["ownerReferences"] = {
      {{"apiVersion", "adaptdl.petuum.com/v1"}, {"kind", "AdaptDLJob"}, {"name", "job"}, {"uid", owner}}};
  return pod;
}

json make_node(bool ready = true) {
  return {
      {"metadata", {{"name", "a"}}},
      {"status",
       {{"allocatable", {{"gpu", 8}}}, {"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}}}};
}

using Keys = std::vector<std::string>;

std::string phase_of(const ClusterState& state) {
  const auto view = state.job("ns/job");
  return view ? adaptdl::kube::text_field(view->job, {"status", "phase"}) : "none";
}

// Returns what the allocator receives for a job with the given status.
AllocatorJob look(const json& status) {
  ClusterState state;
  state.put_job(make_job(status));
  return state.cluster({}, kNow).jobs.at(0);
}

std::size_t pods_of(const ClusterState& state) {
  const auto view = state.job("ns/job");
  return view ? view->pods.size() : 99;
}

}  // namespace

TEST_CASE("stale versions of jobs and pods are ignored") {
  ClusterState state;
  CHECK(state.put_job(make_job({{"phase", "Running"}}, "u", 100)) == "ns/job");
  CHECK(state.put_job(make_job({{"phase", "Starting"}}, "u", 99)).empty());
  CHECK(phase_of(state) == "Running");
  CHECK(state.put_pod(make_pod("p", "u", 100, "Failed")) == "ns/job");
  CHECK(state.put_pod(make_pod("p", "u", 9, "Running")).empty());
  CHECK_FALSE(state.job("ns/job")->pods.at(0).live());
}

TEST_CASE("late responses do not restore deleted objects") {
  ClusterState state;
  state.put_job(make_job());
  state.put_pod(make_pod("p", "u"));
  CHECK(state.drop_pod(make_pod("p", "u")) == "ns/job");
  CHECK(state.put_pod(make_pod("p", "u", 999)).empty());
  CHECK(pods_of(state) == 0);
  CHECK(state.drop_job(make_job()) == "ns/job");
  CHECK(state.put_job(make_job({}, "u", 999)).empty());
  CHECK_FALSE(state.job("ns/job"));
  // The deletion may be reported before the response to the creation arrives.
  state.drop_pod(make_pod("q", "u"));
  CHECK(state.put_pod(make_pod("q", "u")).empty());
}

TEST_CASE("a job that reuses a name is not affected by the old job's pods or deletion") {
  ClusterState state;
  state.put_job(make_job({}, "first", 10));
  state.put_pod(make_pod("p", "first"));
  CHECK(pods_of(state) == 1);
  CHECK(state.put_job(make_job({}, "second", 30)) == "ns/job");
  CHECK(pods_of(state) == 0);
  CHECK(state.drop_job(make_job({}, "first")).empty());
  CHECK(state.job("ns/job"));
  CHECK(state.put_job(make_job({}, "first", 99)).empty());
  CHECK(state.job("ns/job")->job["metadata"]["uid"] == "second");
  CHECK(state.drop_pod(make_pod("p", "first")).empty());
}

TEST_CASE("pods may be reported before their job") {
  ClusterState state;
  CHECK(state.put_pod(make_pod("p", "u")).empty());
  state.put_job(make_job());
  CHECK(pods_of(state) == 1);
}

TEST_CASE("a pod whose owner changes is removed from its job") {
  ClusterState state;
  state.put_job(make_job());
  state.put_pod(make_pod("p", "u", 20));
  CHECK(state.put_pod(make_pod("p", "", 21)) == "ns/job");
  CHECK(pods_of(state) == 0);
  state.drop_pod(make_pod("p", ""));
  CHECK_NOTHROW(state.job("ns/job"));
}

TEST_CASE("a pod in another namespace does not belong to the job whose uid it references") {
  ClusterState state;
  state.put_job(make_job());
  json pod = make_pod("p", "u");
  pod["metadata"]["namespace"] = "other";
  CHECK(state.put_pod(pod).empty());
  CHECK(pods_of(state) == 0);
}

TEST_CASE("pods of other workloads hold their requested resources until they end") {
  ClusterState state;
  state.put_node(make_node());
  CHECK(state.put_pod(make_pod("p", "")).empty());
  CHECK(state.cluster({}, kNow).used["a"]["gpu"] == 2);
  state.put_pod(make_pod("p", "", 21, "Succeeded"));
  CHECK(state.cluster({}, kNow).used.empty());
  json elsewhere = make_pod("q", "");
  elsewhere["spec"].erase("nodeName");
  state.put_pod(elsewhere);
  CHECK(state.cluster({}, kNow).used.empty());
}

TEST_CASE("pods of ended and deleted jobs are treated as pods of other workloads") {
  for (const bool deleted : {false, true}) {
    ClusterState state;
    json job = make_job({{"phase", deleted ? "Running" : "Failed"}});
    if (deleted) job["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z";
    state.put_job(job);
    state.put_pod(make_pod("p", "u"));
    state.put_pod(make_pod("orphan", "no-job"));
    const AllocatorCluster cluster = state.cluster({}, kNow);
    CHECK(cluster.jobs.empty());
    CHECK(cluster.used.at("a").at("gpu") == 4);
  }
}

TEST_CASE("suspended jobs get no decisions, and their remaining pods still hold resources") {
  for (const char* phase : {"", "Pending", "Running", "Stopping", "Suspended"}) {
    CAPTURE(phase);
    ClusterState state;
    json job = make_job({{"phase", phase}, {"allocation", {"a"}}});
    job["spec"]["suspend"] = true;
    state.put_job(job);
    state.put_pod(make_pod("p", "u"));
    const AllocatorCluster cluster = state.cluster({}, kNow);
    CHECK(cluster.jobs.empty());
    CHECK(cluster.used.at("a").at("gpu") == 2);
    CHECK(cluster.released_soon.at("a").at("gpu") == 2);
    CHECK(state.usage().size() == 1);
    job["spec"]["suspend"] = false;
    state.put_job(job);
    CHECK(state.cluster({}, kNow).jobs.size() == 1);
  }
}

TEST_CASE("the allocator gets a job's allocation, its live pods and a replica's requests") {
  ClusterState state;
  state.put_job(make_job({{"phase", "Stopping"}, {"allocation", {"b"}}, {"group", 3}}));
  state.put_pod(make_pod("p", "u"));
  state.put_pod(make_pod("q", "u"));
  state.put_pod(make_pod("r", "u", 20, "Failed"));
  const AllocatorCluster cluster = state.cluster({}, kNow);
  REQUIRE(cluster.jobs.size() == 1);
  const AllocatorJob& job = cluster.jobs[0];
  CHECK(job.info.name == "ns/job");
  CHECK(job.info.resources == Resources{{"gpu", 1}, {"pods", 1}});
  CHECK(job.info.max_replicas == 4);
  CHECK(job.info.num_restarts == 3);
  CHECK(job.current == Allocation{"b"});
  CHECK(job.live == std::map<std::string, int>{{"a", 2}});
  CHECK_FALSE(job.waits_for_first_fit);
  CHECK(cluster.used.empty());
  // The pods' node is missing or not ready, so it cannot confirm that the pods have ended.
  CHECK(job.held);
  state.put_node(make_node());
  CHECK_FALSE(state.cluster({}, kNow).jobs.at(0).held);
  state.put_node(make_node(false));
  CHECK(state.cluster({}, kNow).jobs.at(0).held);
}

TEST_CASE("invalid hints in the status do not stop scheduling") {
  for (const json& train : std::vector<json>{{{"localBszBounds", json::array()}},
                                             {{"localBszBounds", {1, 2}}, {"maxBatchSize", -5}},
                                             {{"maxProfiledReplicas", 1e300}},
                                             {{"nothing", 1}}}) {
    CAPTURE(train);
    ClusterState state;
    state.put_job(make_job({{"phase", "Pending"}, {"train", train}}));
    CHECK(state.cluster({}, kNow).jobs.at(0).info.max_replicas == 4);
  }
}

TEST_CASE("a job's pod that is not a replica is ignored, but it holds resources") {
  ClusterState state;
  state.put_job(make_job({{"phase", "Succeeded"}}));
  json pod = make_pod("copy", "u");
  pod["metadata"]["labels"] = {{"adaptdl/copy", "job"}};
  CHECK(state.put_pod(pod) == "");
  CHECK(state.job("ns/job")->pods.empty());
  CHECK(state.cluster({}, kNow).used.at("a").at("gpu") == 2);
}

TEST_CASE("an allocation above the job's maximum is ignored unless its pods exist") {
  ClusterState state;
  state.put_node(make_node());
  state.put_job(make_job({{"phase", "Running"}, {"allocation", json(5, "a")}}));
  CHECK(state.cluster({}, kNow).jobs.at(0).current.empty());
  for (int i = 0; i < 5; ++i) state.put_pod(make_pod("p" + std::to_string(i), "u"));
  CHECK(state.cluster({}, kNow).jobs.at(0).current.size() == 5);
}

TEST_CASE("a job without nodes waits for first fit unless it is suspended or the policy made it wait") {
  CHECK(look(json::object()).waits_for_first_fit);
  CHECK(look({{"phase", "Pending"}}).waits_for_first_fit);
  CHECK(look({{"phase", "Pending"}, {"reason", "NodeLost"}}).waits_for_first_fit);
  CHECK(look({{"phase", "Pending"}, {"reason", "Resumed"}}).waits_for_first_fit);
  CHECK_FALSE(look({{"phase", "Suspended"}, {"reason", "Suspended"}}).waits_for_first_fit);
  // First fit does not undo decisions of the policy.
  CHECK_FALSE(look({{"phase", "Pending"}, {"reason", "Waiting"}}).waits_for_first_fit);
  CHECK_FALSE(look({{"phase", "Pending"}, {"reason", "Reallocated"}}).waits_for_first_fit);
  CHECK_FALSE(look({{"phase", "Pending"}, {"allocation", {"a"}}}).waits_for_first_fit);
  CHECK_FALSE(look({{"phase", "Starting"}, {"allocation", {"a"}}}).waits_for_first_fit);
}

TEST_CASE("a job is held until its retryAfter, and an invalid retryAfter is ignored") {
  CHECK(look({{"phase", "Pending"}, {"retryAfter", "2026-11-21T12:10:01Z"}}).held);
  CHECK(look({{"phase", "Stopping"}, {"retryAfter", "2026-11-21T12:10:01Z"}}).held);
  CHECK_FALSE(look({{"phase", "Pending"}, {"retryAfter", "2026-11-21T12:10:00Z"}}).held);
  CHECK_FALSE(look({{"phase", "Pending"}, {"retryAfter", "soon"}}).held);
}

TEST_CASE("the allocator uses the newest hints and falls back to those in the status") {
  ClusterState state;
  state.put_job(make_job({{"train", {{"progress", 10}, {"targetProgress", 100}}}}));
  const auto progress_with = [&](const json& hints) {
    const auto newest = [&](const std::string& job, const std::string& uid) {
      return job == "ns/job" && uid == "u" ? hints : json();
    };
    return state.cluster({}, kNow, newest).jobs.at(0).info.progress;
  };
  CHECK(progress_with({{"progress", 20}, {"targetProgress", 100}}) == 20);
  CHECK(progress_with(json::object()) == 10);
}

TEST_CASE("a pod patch that cannot be applied does not stop scheduling") {
  PodSettings settings;
  settings.pod_patch = json::array({{{"op", "remove"}, {"path", "/no/such"}}});
  ClusterState state;
  state.put_job(make_job());
  CHECK(state.cluster(settings, kNow).jobs.at(0).info.resources.at("gpu") == 1);
}

TEST_CASE("a node's jobs are reconciled only when the node is created or deleted or its readiness changes") {
  ClusterState state;
  CHECK(state.node_state("a", kNow) == NodeState::kNotReady);
  state.put_job(make_job({{"phase", "Starting"}, {"allocation", {"a"}}}));
  CHECK(state.put_node(make_node()) == Keys{"ns/job"});
  CHECK(state.node_state("a", kNow) == NodeState::kReady);
  CHECK(state.put_node(make_node()).empty());
  CHECK(state.put_node(make_node(false)) == Keys{"ns/job"});
  CHECK(state.node_state("a", kNow) == NodeState::kNotReady);
  state.put_job(make_job({{"phase", "Stopping"}, {"allocation", {"b"}}}, "u", 11));
  CHECK(state.put_node(make_node()).empty());
  state.put_pod(make_pod("p", "u"));
  CHECK(state.drop_node(make_node()) == Keys{"ns/job"});
  CHECK(state.node_state("a", kNow) == NodeState::kNotReady);
}

TEST_CASE("only a ready node is reported as cordoned or about to be removed") {
  ClusterState state({.taints = {"going"}, .conditions = {}});
  for (const bool ready : {true, false}) {
    json node = make_node(ready);
    node["spec"]["unschedulable"] = true;
    state.put_node(node);
    CHECK(state.node_state("a", kNow) == (ready ? NodeState::kCordoned : NodeState::kNotReady));
    node["spec"] = {{"taints", {{{"key", "going"}}}}};
    state.put_node(node);
    CHECK(state.node_state("a", kNow) == (ready ? NodeState::kLeaving : NodeState::kNotReady));
  }
}

TEST_CASE("a deleted node is reported as gone only after a delay") {
  ClusterState state;
  state.put_node(make_node());
  state.drop_node(make_node());
  const auto later = kNow + ClusterState::kMissingBeforeGone;
  CHECK(state.node_state("a", kNow) == NodeState::kNotReady);
  CHECK(state.node_state("a", later - std::chrono::seconds(1)) == NodeState::kNotReady);
  CHECK(state.node_state("a", later) == NodeState::kGone);
  state.put_node(make_node());
  state.drop_node(make_node());
  CHECK(state.node_state("a", later) == NodeState::kNotReady);
}

TEST_CASE("the cache tolerates objects with missing or invalid fields") {
  ClusterState state;
  for (const json& odd : std::vector<json>{
           json(),
           7,
           json::array(),
           {{"metadata", 3}, {"spec", "x"}, {"status", {1}}},
           {{"metadata", {{"uid", "x"}, {"resourceVersion", "abc"}, {"ownerReferences", {1, nullptr}}}},
            {"spec", {{"template", 3}, {"maxReplicas", -1}, {"minReplicas", 1e300}}},
            {"status", {{"train", {{"perfParams", 3}, {"gradParams", {1}}}}, {"allocation", {1}}, {"group", -5}}}}}) {
    CAPTURE(odd);
    state.put_job(odd);
    state.put_pod(odd);
    state.put_node(odd);
    CHECK_NOTHROW(state.cluster({}, kNow));
    state.drop_pod(odd);
    state.drop_node(odd);
    state.drop_job(odd);
  }
}

}  // namespace operator_state_test
