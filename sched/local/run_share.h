// What a run should have of the devices that the runs of a user share, as the search that it is a trial of finds.
//
// The request for it (see run_control.h) is {"request": "share", "weight": 1.5, "replicas": 2}; both may be left out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace adaptdl::sched {

// Bounds of the weight of a run.
inline constexpr double kMinRunWeight = 1e-3, kMaxRunWeight = 1e3;

struct RunShare {
  double weight = 1;  // of its speedup, beside those of other runs
  // The number that the run prefers, within its bounds and as far as other runs leave room; none: the policy decides.
  std::optional<int> replicas;

  bool operator==(const RunShare&) const = default;
};

nlohmann::json share_request(const RunShare& share);

// What the request asks for; none if a value is invalid.
std::optional<RunShare> parse_share_request(const nlohmann::json& request);

}  // namespace adaptdl::sched
