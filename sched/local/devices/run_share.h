// RunShare determines a run's share of the devices among the user's runs. If the run is a trial, the search chooses the
// share.
//
// The request that sets it is {"request": "share", "weight": 1.5, "replicas": 2}; both fields are optional (see
// run_control.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace adaptdl::sched {

// Bounds of a run's weight.
inline constexpr double kMinRunWeight = 1e-3, kMaxRunWeight = 1e3;

struct RunShare {
  double weight = 1;  // weight of the run's speedup relative to other runs
  // The number of replicas that the run prefers, within its bounds and limited by the devices that other runs leave.
  // nullopt: the policy decides.
  std::optional<int> replicas;

  bool operator==(const RunShare&) const = default;
};

nlohmann::json share_request(const RunShare& share);

// Returns the share that the request specifies, or nullopt if a value is invalid.
std::optional<RunShare> parse_share_request(const nlohmann::json& request);

}  // namespace adaptdl::sched
