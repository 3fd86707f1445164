// Tests that a job recovers from what other clients write into its status and its pods.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kube/api/json_fields.h"
#include "operator/jobs/lifecycle.h"
#include "operator/jobs/members_plan.h"
#include "operator/jobs/replica_pod.h"

namespace operator_foreign_status_test {

using namespace adaptdl::sched;
using namespace std::chrono_literals;
using adaptdl::kube::field;
using adaptdl::kube::parse_time;
using adaptdl::kube::text_field;
using adaptdl::kube::Time;
using nlohmann::json;

namespace {

constexpr int kMaxReplicas = 4;
const std::set<std::string> kNodes = {"a", "b", "c"};

// A job, its pods and the nodes that run them. The program cannot change its replicas without a restart.
struct Cluster {
  json job{{"metadata", {{"namespace", "ns"}, {"name", "job"}, {"uid", "u"}}},
           {"spec", {{"maxReplicas", kMaxReplicas}, {"template", json::object()}}}};
  std::vector<PodFacts> pods;
  std::optional<JobDecision> decision;
  Time now = *parse_time("2026-11-21T12:00:00Z");
  LifecycleSettings settings{.live_rescale = true, .prices = {}};
  int created = 0;

  std::string phase() const { return text_field(job, {"status", "phase"}); }
  bool ended() const { return phase() == "Succeeded" || phase() == "Failed"; }

  // Performs one step like Controller::advance(). Returns whether it changed anything.
  bool step() {
    const auto state = [](const std::string& node) {
      return kNodes.contains(node) ? NodeState::kReady : NodeState::kGone;
    };
    const Plan plan = plan_job({job, pods, decision, {}, json(), state, now, {}, {}, {}}, settings);
    decision.reset();
    if (!plan.status.is_null()) {
      if (!job["status"].is_object()) job["status"] = json::object();
      job["status"].merge_patch(plan.status);
    }
    for (const PodRemoval& removal : plan.removals) {
      const auto pod = std::ranges::find(pods, removal.uid, &PodFacts::uid);
      REQUIRE(pod != pods.end());
      if (removal.force || pod->node.empty())
        pods.erase(pod);
      else
        pod->leaving = true;
    }
    if (!plan.status.is_null()) return true;
    CHECK(plan.missing.size() <= kMaxReplicas);
    for (const int number : plan.missing) create(number);
    return !plan.removals.empty() || !plan.missing.empty();
  }

  void create(int number) {
    const json made = make_replica_pod(job, place_of(job, number), {});
    PodFacts pod{.name = text_field(made, {"metadata", "name"}), .uid = "pod" + std::to_string(created++)};
    // The API server rejects a second pod with the same name.
    if (std::ranges::find(pods, pod.name, &PodFacts::name) != pods.end()) return;
    const json& annotations = field(made, {"metadata", "annotations"});
    pod.group = std::stoi(text_field(annotations, {kGroupAnnotation}));
    pod.rank = std::stoi(text_field(annotations, {kRankAnnotation}));
    pod.number = number;
    pod.node = text_field(made, {"spec", "nodeSelector", "kubernetes.io/hostname"});
    CHECK(kNodes.contains(pod.node));
    pods.push_back(pod);
  }

  // Simulates what happens until the operator reconciles the job again.
  void pass(std::chrono::seconds time) {
    now += time;
    std::erase_if(pods, [](const PodFacts& pod) { return pod.leaving && !pod.live(); });
    for (PodFacts& pod : pods) {
      if (pod.leaving && pod.live()) end(pod, PodEnd::kCheckpointed);
      if (!pod.live()) continue;
      pod.running = true;
      pod.ip = "10.0.0.1";
    }
  }
  void end(PodFacts& pod, PodEnd how) {
    pod.running = false;
    pod.end = how;
    pod.ended = now;
  }

  // Simulates a cycle of the allocator, which decides on every job.
  void cycle(const Allocation& nodes) {
    decision = JobDecision{nodes, "chosen", true, ""};
    for (int steps = 0; step(); ++steps) REQUIRE(steps < 40);
  }

  // Without further disturbances, the job must run and succeed, and leave no running pod.
  void recover(bool may_have_ended = false) {
    for (int round = 0; round < 16; ++round) {
      cycle({"a", "b"});
      pass(60s);
    }
    CAPTURE(job["status"].dump());
    std::string all;
    for (const PodFacts& pod : pods)
      all += fmt::format("{}: group {} rank {} on {}, live {}, leaving {}; ", pod.name, pod.group, pod.rank, pod.node,
                         pod.live(), pod.leaving);
    CAPTURE(all);
    if (!may_have_ended) {
      CHECK(phase() == "Running");
      CHECK(pods.size() == 2);
      CHECK(std::ranges::all_of(pods, &PodFacts::running));
      for (PodFacts& pod : pods) end(pod, PodEnd::kSucceeded);
      cycle({"a", "b"});
      CHECK(phase() == "Succeeded");
    }
    CHECK(std::ranges::none_of(pods, &PodFacts::live));
  }
};

Cluster running() {
  Cluster cluster;
  for (int round = 0; round < 4; ++round) {
    cluster.cycle({"a", "b"});
    cluster.pass(10s);
  }
  cluster.cycle({"a", "b"});
  REQUIRE(cluster.phase() == "Running");
  return cluster;
}

// A job whose phase is one of the last two values has ended.
const std::vector<json>& odd_values() {
  static const std::vector<json> values = [] {
    std::vector<json> all = json::parse(R"([
      null, true, -1, 0, 1, 3, 1999999999, 9.3e18, 1.5, "", "x", [], {}, ["a", "b"], ["a", "nowhere"], [1, 2], {"a": 1},
      "1970-01-01T00:00:00Z", "2026-11-21T12:00:00Z", "2126-11-21T12:00:00Z", "New", "Pending", "Starting", "Running",
      "Stopping", "Suspended", "Resumed", "Reallocated", "Succeeded", "Failed"])");
    all.insert(all.begin(), json(4'000, "a"));
    return all;
  }();
  return values;
}

void check_odd_values(const Cluster& before) {
  std::set<std::string> names = {"retryAfter", "retries", "membership", "troubleSince", "unplaceableSince"};
  for (const auto& [name, value] : before.job["status"].items()) names.insert(name);
  for (const std::string& name : names) {
    for (const json& value : odd_values()) {
      CAPTURE(name);
      CAPTURE(value.dump().substr(0, 80));
      Cluster cluster = before;
      cluster.job["status"][name] = value;
      cluster.recover(cluster.ended());
    }
  }
}

void check_random_changes(unsigned seeds) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t bound) { return random() % bound; };
    Cluster cluster = running();
    for (int round = 0; round < 40 && !cluster.ended(); ++round) {
      json& status = cluster.job["status"];
      const std::size_t kind = below(12);
      if (kind < 4 && status.is_object() && !status.empty()) {
        json* at = &*std::next(status.begin(), static_cast<std::ptrdiff_t>(below(status.size())));
        while (at->is_object() && !at->empty() && below(2) == 0)
          at = &*std::next(at->begin(), static_cast<std::ptrdiff_t>(below(at->size())));
        *at = odd_values()[below(odd_values().size() - 2)];
      } else if (kind == 4) {
        cluster.now += std::chrono::hours(static_cast<int>(below(200)) - 100);
      } else if (kind < 8 && !cluster.pods.empty()) {
        cluster.pods[below(cluster.pods.size())].rank = static_cast<int>(below(4)) - 1;
      } else if (kind == 8 && !cluster.pods.empty()) {
        cluster.pods.erase(cluster.pods.begin() + static_cast<std::ptrdiff_t>(below(cluster.pods.size())));
      }
      cluster.cycle(below(3) == 0 ? Allocation{"c"} : Allocation{"a", "b"});
      cluster.pass(std::chrono::seconds(below(30)));
    }
    cluster.recover();
  }
}

}  // namespace

TEST_CASE("a running job recovers from unexpected values in any status field" * doctest::test_suite("slow")) {
  check_odd_values(running());
}

TEST_CASE("a starting job recovers from unexpected values in any status field" * doctest::test_suite("full")) {
  Cluster starting;
  starting.cycle({"a", "b"});
  REQUIRE(starting.phase() == "Starting");
  check_odd_values(starting);
}

TEST_CASE("a job recovers after its status is removed or replaced") {
  for (const json& value : odd_values()) {
    CAPTURE(value.dump().substr(0, 80));
    Cluster cluster = running();
    cluster.job["status"] = value;
    cluster.recover();
  }
}

TEST_CASE("a job recovers from random changes to its status, its pods and the clock") { check_random_changes(10); }

TEST_CASE("a job recovers from random changes with thousands of seeds" * doctest::test_suite("full")) {
  check_random_changes(3'000);
}

}  // namespace operator_foreign_status_test
