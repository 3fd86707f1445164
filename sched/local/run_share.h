// RunShare is a run's share of the devices of a user's runs, as chosen by the search that the run is a trial of.
//
// The request for it (see run_control.h) is {"request": "share", "weight": 1.5, "replicas": 2}; both are optional.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace adaptdl::sched {

// Bounds of the weight of a run.
inline constexpr double kMinRunWeight = 1e-3, kMaxRunWeight = 1e3;

struct RunShare {
  double weight = 1;  // of its speedup, relative to other runs
  // The number that the run prefers, within its bounds and as far as other runs leave room; none: the policy decides.
  std::optional<int> replicas;

  bool operator==(const RunShare&) const = default;
};

nlohmann::json share_request(const RunShare& share);

// Returns what the request asks for, or none if a value is invalid.
std::optional<RunShare> parse_share_request(const nlohmann::json& request);

}  // namespace adaptdl::sched
