#include "operator/expander.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "kube/json_fields.h"
#include "policy/wording.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// An API server that does not answer must not hold up the scheduling cycle.
constexpr milliseconds kConnectTime{2000}, kCallTime{6000};

}  // namespace

Expander::Expander(kube::Access access, ExpanderSettings settings, std::vector<NodePrice> prices)
    : settings_(std::move(settings)),
      client_(std::move(access), {.connect_timeout = kConnectTime, .timeout = kCallTime, .patience = milliseconds(0)}),
      prices_(std::move(prices)) {}

std::optional<NodePool> Expander::read_pool() {
  try {
    const json deployment = client_.get(kube::path(kube::kDeployments, settings_.name_space, settings_.name));
    replicas_ = kube::int_field(deployment, {"spec", "replicas"}).value_or(1);
    last_error_.clear();
    NodePool pool = settings_.pool;
    pool.pod = kube::field(deployment, {"spec", "template"});
    pool.prices = prices_;
    return pool;
  } catch (const Error& error) {
    warn(error.what());
    return {};
  }
}

void Expander::request(const PoolDecision& decision) {
  const int wanted = decision.desired_nodes;
  if (wanted == replicas_) return;
  try {
    client_.patch(kube::path(kube::kDeployments, settings_.name_space, settings_.name, "scale"), kube::Patch::kMerge,
                  {{"spec", {{"replicas", wanted}}}});
  } catch (const Error& error) {
    return warn(error.what());
  }
  log::info(fmt::format("cluster expander: {} wanted instead of {}: {}", counted(wanted, "node"), replicas_,
                        decision.reason));
}

void Expander::warn(const std::string& error) {
  if (std::exchange(last_error_, error) == error) return;
  log::warn(
      fmt::format("cluster expander: cannot use Deployment '{}/{}': {}", settings_.name_space, settings_.name, error));
}

}  // namespace adaptdl::sched
