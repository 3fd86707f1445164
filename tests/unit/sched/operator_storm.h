// Random events in a simulated cluster while an operator manages a job.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>

#include "operator_cluster.h"

namespace adaptdl::sched::testing {

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

  // Returns whether the pod's group has lost a peer although no replica of the group has failed.
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
