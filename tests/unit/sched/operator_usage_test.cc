// Tests what jobs are charged for: GPU-hours and cost.
#include <doctest/doctest.h>

#include <random>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "kube/jobs/job_usage.h"
#include "operator/nodes/node_price.h"
#include "operator_scene.h"

namespace operator_usage_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;
using doctest::Approx;

namespace {

NodeFacts make_node(const std::string& name, const std::string& type, std::int64_t gpus) {
  NodeFacts node;
  node.name = name;
  node.labels = {{"type", type}, {"capacity", "spot"}};
  node.allocatable = {{"cpu", 16000}, {"memory", 1000}, {"nvidia.com/gpu", gpus}, {"pods", 100}};
  return node;
}

const std::map<std::string, NodeFacts> kNodes = {{"a", make_node("a", "large", 8)}, {"b", make_node("b", "small", 2)}};
const Resources kReplica = {{"cpu", 1000}, {"nvidia.com/gpu", 1}, {"pods", 1}};

std::vector<NodePrice> prices(const char* text) { return parse_node_prices(json::parse(text), "prices"); }
const std::vector<NodePrice> kPrices =
    prices(R"([{"labels": {"type": "large"}, "perHour": 16}, {"labels": {"type": "small"}, "perHour": 3}])");

kube::JobUsage usage_of(const Scene& scene) { return kube::parse_usage(scene.job); }

// Charges the scene's job for 1 GPU per replica, at a price of 36 per hour each.
Scene charged(Scene scene) {
  scene.usage_rate = [](const Allocation& nodes) {
    const auto count = static_cast<double>(nodes.size());
    return UsageRate{count, 36 * count};
  };
  return scene;
}

}  // namespace

TEST_CASE("a node's price is that of the first entry whose labels match") {
  const auto list = prices(R"([{"labels": {"type": "large", "capacity": "reserved"}, "perHour": 1},
    {"labels": {"type": "large", "capacity": "spot"}, "perHour": 2.5}, {"labels": {"type": "large"}, "perHour": 4}])");
  CHECK(price_of(kNodes.at("a"), list) == 2.5);
  CHECK(price_of(kNodes.at("b"), list) == 0);
  CHECK(price_of(kNodes.at("b"), prices(R"([{"labels": {}, "perHour": 7}])")) == 7);
  CHECK(price_of(kNodes.at("b"), {}) == 0);
}

TEST_CASE("on each node, a job pays for its largest share of any resource") {
  // The shares are 2 of 8 GPUs of node a, and 1 of 2 GPUs of node b.
  const UsageRate rate = usage_rate(kReplica, {"a", "a", "b"}, kNodes, kPrices);
  CHECK(rate.gpus == 3);
  CHECK(*rate.cost_per_hour == Approx(16 * 2 / 8.0 + 3 * 1 / 2.0));
  // Each replica takes half of the CPUs of a, so other jobs cannot use its other GPUs.
  const UsageRate greedy = usage_rate({{"cpu", 8000}, {"nvidia.com/gpu", 1}}, {"a", "a"}, kNodes, kPrices);
  CHECK(*greedy.cost_per_hour == Approx(16));
  // A job without GPUs is also charged for its largest share.
  const UsageRate plain = usage_rate({{"cpu", 4000}}, {"b"}, kNodes, kPrices);
  CHECK(plain.gpus == 0);
  CHECK(*plain.cost_per_hour == Approx(3 / 4.0));
}

TEST_CASE("a job's share is at most the whole node, and missing nodes cost nothing") {
  CHECK(*usage_rate({{"cpu", 64000}}, {"b"}, kNodes, kPrices).cost_per_hour == Approx(3));
  CHECK(*usage_rate(kReplica, {"gone"}, kNodes, kPrices).cost_per_hour == 0);
  CHECK(usage_rate(kReplica, {"gone"}, kNodes, kPrices).gpus == 1);
}

TEST_CASE("without prices, the cost is unknown") {
  const UsageRate rate = usage_rate(kReplica, {"a"}, kNodes, {});
  CHECK_FALSE(rate.cost_per_hour);
  CHECK(rate.gpus == 1);
  CHECK(usage_rate({{"cpu", 1}}, {"a"}, kNodes, {}).empty());
}

TEST_CASE("an invalid price is rejected with the number of its entry") {
  for (const char* text : {R"({})", R"([3])", R"([{"labels": {}}])", R"([{"perHour": 1}])",
                           R"([{"labels": {}, "perHour": "1"}])", R"([{"labels": {}, "perHour": -1}])",
                           R"([{"labels": {"a": 1}, "perHour": 1}])", R"([{"labels": {}, "perHour": 1, "perDay": 2}])"})
    CHECK_THROWS_AS(prices(text), Error);
  CHECK_GOLDEN(::testing::error_of<std::exception>(
      [&] { prices(R"([{"labels": {}, "perHour": 1}, {"labels": {}, "perHour": -1}])"); }));
}

TEST_CASE("a job is charged for each group's replicas while any of the group's pods may run") {
  Scene scene = charged(pending());
  scene.decision = nodes({"a", "b"});
  scene.step();
  CHECK(scene.phase() == "Starting");
  // The job holds nothing as long as it has no pod.
  scene.now += 3h;
  scene.step();
  CHECK_FALSE(scene.job["status"].contains("usage"));
  // As soon as it has a pod, the job is charged for 2 replicas: here for 30 minutes, of which they run for 20.
  scene.pods = {make_pod(0, "a")};
  scene.pods[0].running = false;
  scene.step();
  CHECK(usage_of(scene).gpus == 2);
  scene.pods = {make_pod(0, "a"), make_pod(1, "b")};
  scene.now += 10min;
  scene.step();
  CHECK(scene.phase() == "Running");
  scene.now += 20min;
  CHECK(usage_of(scene).gpu_hours(scene.now) == Approx(1));
  CHECK(*usage_of(scene).total_cost(scene.now) == Approx(36));
  // The group holds its nodes until all of its pods have ended, 6 minutes later, although the next group is decided.
  scene.decision = nodes({"c"});
  scene.step();
  CHECK(scene.phase() == "Stopping");
  scene.now += 6min;
  scene.pods = {ended(make_pod(0, "a"), PodEnd::kCheckpointed), ended(make_pod(1, "b"), PodEnd::kCheckpointed)};
  scene.step();
  CHECK(scene.phase() == "Starting");
  CHECK_FALSE(usage_of(scene).since);
  CHECK(usage_of(scene).gpu_hours(scene.now + 1h) == Approx(1.2));
  // The next group has 1 replica for an hour.
  scene.pods = {make_pod(0, "c", 1)};
  scene.step();
  CHECK(usage_of(scene).gpus == 1);
  scene.now += 1h;
  scene.pods = {ended(make_pod(0, "c", 1), PodEnd::kSucceeded)};
  scene.step();
  CHECK(scene.phase() == "Succeeded");
  CHECK_FALSE(usage_of(scene).since);
  CHECK(usage_of(scene).gpu_hours(scene.now + 9h) == Approx(2.2));
  CHECK(*usage_of(scene).total_cost(scene.now + 9h) == Approx(36 * 2.2));
  CHECK_FALSE(scene.job["status"]["usage"].contains("gpus"));
  CHECK(scene.step().changes_nothing());
}

TEST_CASE("a job that is already running when accounting begins is charged from then on") {
  Scene scene = charged(running({"a", "b"}));
  scene.step();
  CHECK(usage_of(scene).gpus == 2);
  CHECK(usage_of(scene).since == scene.now);
  CHECK(scene.plan().status.is_null());
  // A stopping job is charged for the group that is still running, although the allocation is that of the next one.
  scene = charged(stopping({"a", "b"}, {"c"}));
  scene.step();
  CHECK(usage_of(scene).gpus == 2);
}

TEST_CASE("a failed job is charged until its last pod has ended") {
  Scene scene = charged(running({"a", "a"}));
  scene.step();
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed);
  scene.step();
  CHECK(scene.phase() == "Failed");
  CHECK(usage_of(scene).since);
  scene.now += 30min;
  scene.pods[1] = ended(scene.pods[1], PodEnd::kCheckpointed);
  scene.step();
  CHECK(scene.phase() == "Failed");
  CHECK_FALSE(usage_of(scene).since);
  CHECK(usage_of(scene).gpu_hours(scene.now + 9h) == Approx(1));
}

TEST_CASE("a job is charged until its pods have ended, even if the operator notices this late") {
  Scene scene = charged(running({"a", "b"}));
  scene.step();
  for (PodFacts& pod : scene.pods) pod = ended(pod, PodEnd::kSucceeded);
  scene.pods[0].last_ended = scene.now + 5min;
  scene.pods[1].last_ended = scene.now + 15min;
  scene.now += 3h;
  scene.step();
  CHECK(scene.phase() == "Succeeded");
  CHECK(usage_of(scene).gpu_hours(scene.now) == Approx(0.5));
}

TEST_CASE("the end times of remaining pods are not used for deleted pods") {
  Scene scene = charged(running({"a", "b"}));
  scene.job["status"]["group"] = 1;
  scene.pods = {make_pod(0, "a", 1), make_pod(1, "b", 1)};
  scene.step();
  scene.now += 1h;
  // One of the remaining pods is of an earlier group, and the other is one of the job's two replicas.
  scene.pods = {ended(make_pod(0, "a", 0), PodEnd::kFailed), ended(make_pod(0, "a", 1), PodEnd::kCheckpointed)};
  scene.pods[0].last_ended = scene.now - 5h;
  scene.pods[1].last_ended = scene.now - 30min;
  scene.step();
  CHECK_FALSE(usage_of(scene).since);
  CHECK(usage_of(scene).gpu_hours(scene.now) == Approx(2));
}

TEST_CASE("a node whose clock is ahead does not cause charges for future time") {
  Scene scene = charged(running({"a"}));
  scene.step();
  scene.now += 1h;
  scene.pods[0] = ended(scene.pods[0], PodEnd::kSucceeded);
  scene.pods[0].last_ended = scene.now + 24h;
  scene.step();
  CHECK(usage_of(scene).gpu_hours(scene.now) == Approx(1));
}

TEST_CASE("a job that is being deleted is charged until its pods have ended") {
  Scene scene = charged(running({"a"}));
  scene.step();
  scene.job["metadata"]["deletionTimestamp"] = kTenMinutesAgo;
  scene.now += 1h;
  CHECK(scene.step().changes_nothing());
  scene.pods.clear();
  const Plan plan = scene.step();
  CHECK(plan.status.size() == 1);
  CHECK(plan.removals.empty());
  CHECK(usage_of(scene).gpu_hours(scene.now + 9h) == Approx(1));
  CHECK(scene.step().changes_nothing());
}

TEST_CASE("a job is charged from its first pod's creation, even if another operator created it") {
  Scene scene = charged(starting({"a", "b"}));
  scene.pods.pop_back();
  scene.pods[0].created = scene.now - 3h;
  scene.step();
  CHECK(usage_of(scene).gpu_hours(scene.now) == Approx(6));
}

TEST_CASE("pods on a node that is not ready are charged, and pods on a node that is gone are not") {
  Scene scene = charged(running({"a", "b"}));
  scene.step();
  scene.nodes["b"] = NodeState::kNotReady;
  scene.pods[0] = ended(scene.pods[0], PodEnd::kFailed);
  scene.step();
  scene.now += 1h;
  scene.step();
  CHECK(usage_of(scene).since);
  scene.nodes.erase("b");
  scene.step();
  CHECK_FALSE(usage_of(scene).since);
}

TEST_CASE("price changes and removals do not affect earlier charges") {
  kube::JobUsage usage;
  usage.hold(4, 10.0, kNow);
  usage.hold(2, {}, kNow + 1h);
  usage.hold(2, 100.0, kNow + 2h);
  usage.release(kNow + 3h);
  CHECK(usage.gpu_hours(kNow + 9h) == Approx(8));
  CHECK(*usage.total_cost(kNow + 9h) == Approx(110));
  CHECK(kube::parse_usage({{"status", {{"usage", kube::to_json(usage)}}}}).gpu_seconds == Approx(8 * 3600));
}

TEST_CASE("a clock that is set back or an invalid status does not cause negative usage") {
  kube::JobUsage usage;
  usage.hold(4, 10.0, kNow);
  usage.release(kNow - 1h);
  CHECK(usage.gpu_seconds == 0);
  for (const char* text : {R"(null)", R"([])", R"({"gpuSeconds": "x", "cost": -5, "since": 3})",
                           R"({"gpuSeconds": -1, "gpus": {}, "since": "2026-11-21T12:00:00Z"})"}) {
    const kube::JobUsage parsed = kube::parse_usage({{"status", {{"usage", json::parse(text)}}}});
    CHECK(parsed.gpu_hours(kNow) == 0);
    CHECK(parsed.total_cost(kNow).value_or(0) == 0);
  }
}

}  // namespace operator_usage_test
