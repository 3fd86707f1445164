// A simulated cluster, in which the operator may crash between any two API calls.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
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
  // Returns whether replicas fail when they lose others.
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

// Random events in a cluster while an operator manages a job.
class Storm {
 public:
  // `suspends`: whether the events include suspensions of the job.
  Storm(unsigned seed, Cluster& cluster, bool suspends = false)
      : random_(seed), suspends_(suspends), cluster_(cluster) {
    cluster_.crash_point = [this] {
      if (crashes_ && chance(12)) throw Crash();
    };
  }

  void rage(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (int count = 1 + below(3); count > 0; --count) disturb();
      cluster_.check();
      one_step();
      cluster_.check();
      cluster_.now += std::chrono::seconds(below(20));
    }
  }

  // Ends all disturbances and suspends the job, which must have no pods in the end, whatever the allocator decides.
  void suspend() {
    end_disturbances();
    cluster_.job["spec"]["suspend"] = true;
    for (int round = 0; round < 10; ++round, cluster_.now += 30s) {
      cluster_.decision = JobDecision{any_nodes(), "chosen", true};
      cluster_.sync();
      cluster_.all_progress();
    }
    cluster_.sync();
    CHECK_FALSE(cluster_.step());
    const bool over = cluster_.phase() == "Succeeded" || cluster_.phase() == "Failed";
    CHECK(over == (cluster_.phase() != "Suspended"));
    CHECK(std::ranges::none_of(cluster_.pods, &PodFacts::live));
  }

  // Ends all disturbances: the job gets nodes whenever it is waiting for them, and its pods make progress.
  void calm() {
    end_disturbances();
    cluster_.job["spec"].erase("suspend");
    for (int round = 0; round < 40; ++round, cluster_.now += 30s) {
      if (waits()) cluster_.decision = JobDecision{any_nodes(), "chosen", true};
      cluster_.sync();
      cluster_.all_progress();
    }
    cluster_.sync();
    CHECK_FALSE(cluster_.step());
    if (cluster_.phase() == "Running") {
      CHECK(std::ranges::all_of(cluster_.pods, [this](const PodFacts& pod) {
        return !pod.leaving && (pod.running || pod.end == PodEnd::kSucceeded) && pod.group == cluster_.group();
      }));
      for (PodFacts& pod : cluster_.pods) cluster_.end(pod, PodEnd::kSucceeded);
      cluster_.sync();
      CHECK(cluster_.phase() == "Succeeded");
    }
    const bool over = cluster_.phase() == "Succeeded" || cluster_.phase() == "Failed";
    CHECK(over);
    CHECK(std::ranges::none_of(cluster_.pods, &PodFacts::live));
    CHECK_FALSE(cluster_.step());
  }

 private:
  void end_disturbances() {
    crashes_ = false;
    cluster_.next_refusal.reset();
    for (const char* node : {"a", "b", "c"}) cluster_.nodes[node] = NodeState::kReady;
  }

  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  bool chance(int one_in) { return below(one_in) == 0; }

  bool waits() const {
    return cluster_.phase().empty() ||
           (cluster_.phase() == "Pending" && cluster_.job["status"].value("allocation", json::array()).empty());
  }
  Allocation any_nodes() {
    Allocation nodes;
    for (const auto& [name, state] : cluster_.nodes)
      nodes.insert(nodes.end(), static_cast<std::size_t>(below(3)), name);
    return nodes.empty() ? Allocation{"a"} : nodes;
  }

  void one_step() {
    try {
      cluster_.step();
    } catch (const Crash&) {
      cluster_.forget();
    }
  }

  void disturb() {
    if (suspends_ && chance(cluster_.suspended() ? 8 : 40)) cluster_.job["spec"]["suspend"] = !cluster_.suspended();
    const int kind = below(40);
    if (kind == 0 || (waits() && chance(2))) cluster_.decision = JobDecision{any_nodes(), "chosen", true};
    if (kind == 1 && chance(3)) cluster_.decision = JobDecision{{}, "waits", true};
    if (kind == 2) change_node();
    if (kind == 3 && chance(4)) cluster_.next_refusal = PodRefusal{{}, !chance(8), "refused"};
    if (kind == 4) cluster_.all_progress();
    if (kind == 5 && chance(3)) cluster_.now += 700s;
    if (cluster_.pods.empty()) return;
    const auto index = static_cast<std::size_t>(below(static_cast<int>(cluster_.pods.size())));
    PodFacts& pod = cluster_.pods[index];
    const bool runs = pod.running && cluster_.runs_pods(pod.node);
    if (kind == 6 && runs && chance(2)) {
      cluster_.end(pod, PodEnd::kLost);
    } else if (kind == 7 && chance(2)) {
      cluster_.remove({pod.name, pod.uid, false});  // deleted by a user
    } else if (kind == 8 && chance(4)) {
      cluster_.pods.erase(cluster_.pods.begin() + static_cast<std::ptrdiff_t>(index));  // force-deleted by a user
    } else if (kind == 9 && runs && chance(2)) {
      cluster_.end_together(pod, PodEnd::kCheckpointed);
    } else if (kind == 10 && runs && chance(8)) {
      cluster_.failure_counts = true;
      cluster_.end(pod, PodEnd::kFailed);
    } else if (kind == 11 && cluster_.fails_with_others() && runs && !pod.leaving && cluster_.phase() == "Running" &&
               breaks(pod)) {
      cluster_.end(pod, PodEnd::kFailed);  // a replica fails after it loses a peer; this must not fail the job
    } else if (kind == 12 && runs && cluster_.phase() == "Running") {
      cluster_.end_together(pod, PodEnd::kSucceeded);
    } else if (kind > 12) {
      cluster_.progress(index);
    }
  }

  // Returns whether a peer in the pod's group is visibly lost.
  bool breaks(const PodFacts& pod) const {
    const auto& pods = cluster_.pods;
    const auto peers = std::ranges::count_if(pods, [&](const PodFacts& peer) {
      const bool trains = peer.live() && !peer.leaving && cluster_.runs_pods(peer.node);
      return peer.group == pod.group && (trains || peer.end == PodEnd::kSucceeded);
    });
    return peers < static_cast<std::ptrdiff_t>(cluster_.starts.at(pod.group).size()) &&
           std::ranges::none_of(
               pods, [&](const PodFacts& peer) { return peer.group == pod.group && peer.end == PodEnd::kFailed; });
  }

  void change_node() {
    const std::string name(1, static_cast<char>('a' + below(3)));
    switch (below(5)) {
      case 0:
        cluster_.nodes.erase(name);
        break;
      case 2:
        if (cluster_.nodes.contains(name))
          cluster_.nodes[name] = chance(2) ? NodeState::kCordoned : NodeState::kLeaving;
        break;
      case 1:
        if (cluster_.nodes.contains(name)) cluster_.nodes[name] = NodeState::kNotReady;
        break;
      default:
        // A re-created node does not have its earlier pods.
        if (!cluster_.nodes.contains(name))
          std::erase_if(cluster_.pods, [&](const PodFacts& pod) { return pod.node == name; });
        cluster_.nodes[name] = NodeState::kReady;
    }
  }

  std::mt19937 random_;
  const bool suspends_;
  bool crashes_ = true;
  Cluster& cluster_;
};

}  // namespace adaptdl::sched::testing
