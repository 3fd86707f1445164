// Fixtures for tests of the life cycle: a job with its pods and nodes, to which plans are applied.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/api/json_fields.h"
#include "operator/jobs/lifecycle.h"

namespace adaptdl::sched::testing {

using adaptdl::kube::parse_time;
using adaptdl::kube::Time;
using nlohmann::json;
using namespace std::chrono_literals;

inline const Time kNow = *parse_time("2026-11-21T12:10:00Z");
constexpr const char* kTenMinutesAgo = "2026-11-21T12:00:00Z";
constexpr const char* kTenSecondsAgo = "2026-11-21T12:09:50Z";

inline PodFacts make_pod(int rank, const std::string& node, int group = 0) {
  PodFacts pod{.name = "job-u-" + std::to_string(group) + '-' + std::to_string(rank), .node = node};
  pod.uid = "uid-" + std::to_string(group) + '-' + std::to_string(rank);
  pod.ip = "10.0.0." + std::to_string(10 * group + rank);
  pod.group = group;
  pod.rank = pod.number = rank;
  pod.running = true;
  return pod;
}

inline PodFacts ended(PodFacts pod, PodEnd end, std::optional<Time> when = kNow - 5s) {
  pod.running = false;
  pod.end = end;
  pod.ended = when;
  pod.message = end == PodEnd::kFailed ? "exited with code 1" : "";
  if (end == PodEnd::kFailed) pod.reason = "PodFailure";
  return pod;
}

inline PodFacts leaving(PodFacts pod) {
  pod.leaving = true;
  return pod;
}

inline PodFacts troubled(PodFacts pod, PodTrouble trouble) {
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
  json hints;
  ReplicaReports reports;
  Time now = kNow, leads_since{};
  LifecycleSettings settings;
  std::function<UsageRate(const Allocation&)> usage_rate;

  Plan plan() const {
    const auto state = [this](const std::string& name) {
      const auto found = nodes.find(name);
      return found == nodes.end() ? NodeState::kGone : found->second;
    };
    return plan_job({job, pods, decision, refusal, hints, state, now, leads_since, reports, usage_rate}, settings);
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

// Returns a job whose group 0 is running on these nodes.
inline Scene running(const Allocation& nodes, const char* since = kTenMinutesAgo) {
  Scene scene;
  scene.job["status"] = {{"phase", "Running"}, {"phaseSince", since},      {"allocation", nodes},
                         {"group", 0},         {"replicas", nodes.size()}, {"reason", "Allocated"}};
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    scene.pods.push_back(make_pod(static_cast<int>(rank), nodes[rank]));
  return scene;
}

inline Scene starting(const Allocation& nodes, const char* since = kTenSecondsAgo) {
  Scene scene = running(nodes, since);
  scene.job["status"]["phase"] = "Starting";
  return scene;
}

inline Scene stopping(const Allocation& nodes, const Allocation& next) {
  Scene scene = running(nodes, kTenSecondsAgo);
  scene.job["status"]["phase"] = "Stopping";
  scene.job["status"]["allocation"] = next;
  return scene;
}

inline Scene pending() {
  Scene scene;
  scene.job["status"] = {{"phase", "Pending"}, {"phaseSince", kTenSecondsAgo}};
  return scene;
}

inline JobDecision nodes(const Allocation& allocation) { return {allocation, "chosen", true}; }

}  // namespace adaptdl::sched::testing
