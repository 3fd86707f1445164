// A simulated cluster, in which the operator may crash between any two API calls.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kube/api/json_fields.h"
#include "operator/jobs/lifecycle.h"
#include "operator/jobs/members_plan.h"
#include "operator/jobs/replica_pod.h"

namespace adaptdl::sched::testing {

using adaptdl::kube::field;
using adaptdl::kube::parse_time;
using adaptdl::kube::text_field;
using adaptdl::kube::Time;
using nlohmann::json;
using namespace std::chrono_literals;

struct Crash {};

struct Cluster {
  Cluster() = default;
  Cluster(const Cluster&) = delete;
  virtual ~Cluster() = default;

  json job{{"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", "u"}}},
           {"spec", {{"maxReplicas", 8}, {"template", json::object()}}}};
  std::vector<PodFacts> pods;
  std::map<std::string, NodeState> nodes{{"a", NodeState::kReady}, {"b", NodeState::kReady}, {"c", NodeState::kReady}};
  std::optional<JobDecision> decision;
  std::optional<PodRefusal> next_refusal;
  Time now = *parse_time("2026-11-21T12:00:00Z");
  LifecycleSettings settings;

  std::map<int, Allocation> starts;           // by group
  std::map<std::string, std::string> places;  // the nodes for which pods are created, by pod name
  bool failure_counts = false;                // an event that may fail the job has happened
  std::function<void()> crash_point;          // may throw Crash
  bool may_crash = true;
  int created = 0;

  std::string phase() const { return text_field(job, {"status", "phase"}); }
  bool suspended() const { return adaptdl::kube::bool_field(job, {"spec", "suspend"}, false); }
  int group() const { return adaptdl::kube::int_field(job, {"status", "group"}).value_or(-1); }
  NodeState state_of(const std::string& node) const {
    const auto found = nodes.find(node);
    return found == nodes.end() ? NodeState::kGone : found->second;
  }
  // Returns whether the node's pods are running.
  bool runs_pods(const std::string& node) const {
    return state_of(node) != NodeState::kGone && state_of(node) != NodeState::kNotReady;
  }
  // Returns whether the pod has not ended and its node exists.
  bool alive(const PodFacts& pod) const {
    return pod.live() && (pod.node.empty() || state_of(pod.node) != NodeState::kGone);
  }

  // Performs one step like Controller::advance(). Returns whether it changed anything.
  bool step() {
    JobSituation situation = this->situation();
    const Plan plan = plan_job(situation, settings);
    crash_point();
    write(plan.status);
    announce(plan);
    decision.reset();
    for (const PodRemoval& removal : plan.removals) {
      crash_point();
      remove(removal);
    }
    if (!plan.status.is_null()) return true;
    for (const int number : plan.missing) {
      crash_point();
      if (next_refusal) {
        situation.refusal = std::exchange(next_refusal, {});
        if (place_of(job, number).generation > 0) situation.refusal->replica = number;
        failure_counts = failure_counts || !situation.refusal->quota;
        write(plan_job(situation, settings).status);
      } else {
        create(number);
      }
      return true;
    }
    return false;
  }

  // Performs steps until nothing is left to do at this time. After a crash, the next operator continues.
  void sync() {
    for (int steps = 0;; ++steps) {
      REQUIRE(steps < 60);
      try {
        if (!step()) return;
      } catch (const Crash&) {
        forget();
      }
      check();
    }
  }

  void write(const json& status) {
    if (status.is_null()) return;
    const int before = group();
    const std::string old_phase = phase();
    job["status"].merge_patch(status);
    CHECK_FALSE(job["status"].is_null());
    const bool had_ended = old_phase == "Succeeded" || old_phase == "Failed";
    if (had_ended) CHECK(phase() == old_phase);
    if (phase() == "Failed") CHECK(failure_counts);
    if (group() == before) return;
    CHECK(group() == before + 1);
    CHECK(phase() == "Starting");
    CHECK_FALSE(suspended());
    starts[group()] = job["status"]["allocation"].get<Allocation>();
    CHECK_FALSE(starts[group()].empty());
    for (const PodFacts& pod : pods) CHECK_FALSE(alive(pod));
  }

  void create(int number) {
    CHECK_FALSE(suspended());
    PodPlace place = place_of(job, number);
    place.token = "token";
    const json made = make_replica_pod(job, place, {});
    const json& annotations = field(made, {"metadata", "annotations"});
    PodFacts pod{.name = text_field(made, {"metadata", "name"}), .uid = "pod" + std::to_string(created++)};
    for (const PodFacts& other : pods) REQUIRE(other.name != pod.name);  // the API server would reject a duplicate name
    pod.group = std::stoi(text_field(annotations, {kGroupAnnotation}));
    pod.rank = std::stoi(text_field(annotations, {kRankAnnotation}));
    pod.number = number;
    places[pod.name] = text_field(made, {"spec", "nodeSelector", "kubernetes.io/hostname"});
    if (place.generation == 0) {
      const Allocation& started = starts[pod.group];
      CHECK(text_field(annotations, {"adaptdl/replicas"}) == std::to_string(started.size()));
      CHECK(places[pod.name] == started.at(static_cast<std::size_t>(pod.rank)));
    }
    pods.push_back(pod);
  }

  virtual JobSituation situation() const {
    return {job, pods, decision, {}, json(), [this](const std::string& node) { return state_of(node); }, now};
  }
  // Simulates a crash of the operator, which loses its memory.
  virtual void forget() { decision.reset(); }
  // Sends the plan's changes of members to the replicas.
  virtual void announce(const Plan&) {}
  // Returns whether the pod may be deleted without a grace period.
  virtual bool may_be_killed(const PodFacts& pod) const { return state_of(pod.node) == NodeState::kGone; }
  // Returns whether replicas fail when they lose a peer.
  virtual bool fails_with_others() const { return true; }
  // Ends all replicas that are training with this one, all in the same way.
  virtual void end_together(PodFacts& pod, PodEnd how) { end(pod, how); }

  // A running pod gets time to terminate; other pods are deleted immediately.
  virtual void remove(const PodRemoval& removal) {
    const auto pod = std::ranges::find(pods, removal.uid, &PodFacts::uid);
    if (pod == pods.end()) return;
    if (removal.force || pod->node.empty()) {
      if (removal.force && !pod->node.empty()) CHECK(may_be_killed(*pod));
      pods.erase(pod);
    } else {
      pod->leaving = true;
    }
  }

  void check() {
    std::set<int> live;
    for (const PodFacts& pod : pods) {
      if (alive(pod)) live.insert(pod.group);
      if (!pod.node.empty()) CHECK(pod.node == places[pod.name]);
    }
    CHECK(live.size() <= 1);
  }

  // Simulates one action of the kubelet or the Kubernetes scheduler on a pod. Returns false if the pod was deleted.
  virtual bool progress(std::size_t index) {
    PodFacts& pod = pods[index];
    if (pod.node.empty()) {
      const std::string& node = places[pod.name];
      if (state_of(node) == NodeState::kReady) pod.node = node;
      pod.trouble = pod.node.empty() ? PodTrouble::kUnscheduled : PodTrouble::kNone;
    } else if (!runs_pods(pod.node)) {
      return true;
    } else if (pod.leaving && !pod.live()) {
      pods.erase(pods.begin() + static_cast<std::ptrdiff_t>(index));
      return false;
    } else if (pod.leaving) {
      end(pod, PodEnd::kCheckpointed);
    } else if (pod.live()) {
      pod.ip = "10.0.0.1";
      pod.running = true;
      pod.trouble = PodTrouble::kNone;
    }
    return true;
  }

  void end(PodFacts& pod, PodEnd how) {
    pod.running = false;
    pod.end = how;
    pod.ended = now;
  }

  void all_progress() {
    for (std::size_t i = 0; i < pods.size();) i += progress(i) ? 1 : 0;
    std::erase_if(pods,
                  [this](const PodFacts& pod) { return !pod.node.empty() && state_of(pod.node) == NodeState::kGone; });
  }
};

// Calls `what` with a crash at the first, second, … crash point, until none is reached. Returns the number of points.
template <typename ClusterType = Cluster>
int for_each_crash(const std::function<void(ClusterType&)>& what) {
  for (int at = 0;; ++at) {
    CAPTURE(at);
    ClusterType cluster;
    int point = 0;
    bool crashed = false;
    cluster.crash_point = [&] {
      if (!cluster.may_crash || point++ != at) return;
      crashed = true;
      throw Crash();
    };
    what(cluster);
    if (!crashed) return at;
  }
}

// Decides twice, because a decision may be lost in a crash and the next operator would decide again.
inline void decide(Cluster& cluster, const Allocation& nodes) {
  for (int i = 0; i < 2; ++i) {
    const bool done = cluster.group() >= 0 && cluster.job["status"]["allocation"] == json(nodes);
    if (!done) cluster.decision = JobDecision{nodes, "chosen", true};
    cluster.sync();
  }
}

inline void run_all(Cluster& cluster) {
  for (int i = 0; i < 6; ++i, cluster.now += 5s) {
    cluster.all_progress();
    cluster.sync();
  }
  CHECK(cluster.phase() == "Running");
  CHECK(cluster.pods.size() == cluster.starts[cluster.group()].size());
}

}  // namespace adaptdl::sched::testing
