// The resources that an AdaptDLJob has used: the `usage` field of its status, which the operator writes.
//
//   gpuSeconds, cost               used until `since`
//   gpus, costPerHour, since       what the job has held since then; missing while it holds nothing
//
// `cost` and `costPerHour` are in the currency of the operator's prices. They are missing if no prices are set.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "kube/api/timestamp.h"

namespace adaptdl::kube {

struct JobUsage {
  double gpu_seconds = 0;
  std::optional<double> cost;
  double gpus = 0;
  std::optional<double> cost_per_hour;
  std::optional<Time> since;

  double gpu_hours(Time now) const;
  // Returns null if the job has never held anything with a price.
  std::optional<double> total_cost(Time now) const;
  // Adds the usage up to `now`; from then on, the job holds the new amounts.
  void hold(double new_gpus, std::optional<double> new_cost_per_hour, Time now);
  // Adds the usage up to `now`; from then on, the job holds nothing.
  void release(Time now);
};

// Returns a job's usage. A field that is missing or invalid is read as 0 if it is a number of GPUs or GPU-seconds, and
// as null otherwise.
JobUsage parse_usage(const nlohmann::json& job);
nlohmann::json to_json(const JobUsage& usage);

}  // namespace adaptdl::kube
