#include "operator/cluster/expander.h"

#include <fmt/format.h>

#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "base/counted.h"
#include "kube/api/json_fields.h"
#include "operator/base/brief_calls.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

constexpr const char* kDeletionCost = "controller.kubernetes.io/pod-deletion-cost";

}  // namespace

Expander::Expander(kube::Access access, ExpanderSettings settings, std::vector<NodePrice> prices)
    : settings_(std::move(settings)), client_(std::move(access), kBriefCalls), prices_(std::move(prices)) {}

std::optional<NodePool> Expander::read_pool() {
  try {
    const json deployment = client_.get(kube::path(kube::kDeployments, settings_.name_space, settings_.name));
    replicas_ = kube::int_field(deployment, {"spec", "replicas"}).value_or(1);
    last_error_.clear();
    NodePool pool = settings_.pool;
    pool.pod = kube::field(deployment, {"spec", "template"});
    pool.prices = prices_;
    pool.last_desired = replicas_;
    selector_.clear();
    const json& labels = kube::field(deployment, {"spec", "selector", "matchLabels"});
    for (const auto& [name, value] : labels.items())
      selector_ += fmt::format("{}{}={}", selector_.empty() ? "" : ",", name, value.get<std::string>());
    if (selector_.empty()) throw Error("spec.selector.matchLabels is missing");
    pool_ = std::move(pool);
  } catch (const Error& error) {
    warn(error.what());
  }
  return pool_;
}

// Deletes the placeholders on closed nodes, and marks those on surplus nodes so that they end first.
void Expander::move_placeholders(const PoolDecision& decision) {
  const bool fewer = decision.desired_nodes < replicas_;
  const kube::ListOptions placeholders{.label_selector = selector_, .field_selector = {}};
  for (const json& pod : client_.list(kube::path(kube::kPods, settings_.name_space), placeholders)) {
    const std::string path = kube::path(kube::kPods, settings_.name_space, kube::name_of(pod));
    const std::string node = kube::text_field(pod, {"spec", "nodeName"});
    try {
      if (decision.closed.contains(node) && kube::text_field(pod, {"metadata", "deletionTimestamp"}).empty()) {
        client_.remove(path);
        continue;
      }
      const json cost = decision.surplus.contains(node) ? json("-1") : json();
      if (fewer && kube::field(pod, {"metadata", "annotations", kDeletionCost}) != cost)
        client_.patch(path, kube::Patch::kMerge, {{"metadata", {{"annotations", {{kDeletionCost, cost}}}}}});
    } catch (const kube::ApiError& error) {
      if (!error.not_found()) throw;
    }
  }
}

void Expander::request(const PoolDecision& decision) {
  const int wanted = decision.desired_nodes;
  try {
    move_placeholders(decision);
    if (wanted == replicas_) return;
    client_.patch(kube::path(kube::kDeployments, settings_.name_space, settings_.name, "scale"), kube::Patch::kMerge,
                  {{"spec", {{"replicas", wanted}}}});
  } catch (const Error& error) {
    return warn(error.what());
  }
  log::info(fmt::format("cluster expander: {} requested instead of {}: {}", counted(wanted, "node"), replicas_,
                        decision.reason));
}

void Expander::warn(const std::string& error) {
  if (std::exchange(last_error_, error) == error) return;
  log::warn(
      fmt::format("cluster expander: cannot use Deployment '{}/{}': {}", settings_.name_space, settings_.name, error));
}

}  // namespace adaptdl::sched
