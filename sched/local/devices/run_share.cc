#include "local/devices/run_share.h"

#include <nlohmann/json.hpp>

namespace adaptdl::sched {
namespace {

constexpr std::int64_t kMaxPreferred = 1'000'000;

}  // namespace

nlohmann::json share_request(const RunShare& share) {
  return {{"request", "share"},
          {"weight", share.weight},
          {"replicas", share.replicas ? nlohmann::json(*share.replicas) : nlohmann::json()}};
}

std::optional<RunShare> parse_share_request(const nlohmann::json& request) {
  RunShare share;
  if (const auto weight = request.find("weight"); weight != request.end()) {
    if (!weight->is_number()) return {};
    share.weight = weight->get<double>();
    // The condition is false for NaN, too.
    if (!(share.weight >= kMinRunWeight && share.weight <= kMaxRunWeight)) return {};
  }
  if (const auto replicas = request.find("replicas"); replicas != request.end() && !replicas->is_null()) {
    const std::int64_t count = replicas->is_number_integer() ? replicas->get<std::int64_t>() : 0;
    if (count < 1 || count > kMaxPreferred) return {};
    share.replicas = static_cast<int>(count);
  }
  return share;
}

}  // namespace adaptdl::sched
