// The resources that an AdaptDLJob has used: the field `usage` of its status, which the operator writes.
//
//   gpuSeconds, cost               used until `since`
//   gpus, costPerHour, since       what the job holds since then; missing while it holds nothing
//
// `cost` and `costPerHour` are in the currency of the operator's prices, and missing without prices.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "kube/timestamp.h"

namespace adaptdl::kube {

struct JobUsage {
  double gpu_seconds = 0;
  std::optional<double> cost;
  double gpus = 0;
  std::optional<double> cost_per_hour;
  std::optional<Time> since;

  double gpu_hours(Time now) const;
  // Returns null if the job has never held anything that has a price.
  std::optional<double> total_cost(Time now) const;
  // Adds up what the job held until `now`; from then on it holds the new amounts.
  void hold(double new_gpus, std::optional<double> new_cost_per_hour, Time now);
  // Adds up what the job held until `now`; from then on it holds nothing.
  void release(Time now);
};

// Returns the usage of a job. Fields that are missing or invalid count as 0 or as missing.
JobUsage parse_usage(const nlohmann::json& job);
nlohmann::json to_json(const JobUsage& usage);

}  // namespace adaptdl::kube
