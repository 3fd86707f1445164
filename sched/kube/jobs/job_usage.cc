#include "kube/jobs/job_usage.h"

#include <algorithm>
#include <chrono>

#include "kube/api/json_fields.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr double kSecondsPerHour = 3600;

std::optional<double> amount(const json& job, const char* name) {
  const json& value = field(job, {"status", "usage", name});
  if (!value.is_number()) return {};
  return std::max(value.get<double>(), 0.0);
}

double seconds_held(const JobUsage& usage, Time now) {
  return usage.since && now > *usage.since ? std::chrono::duration<double>(now - *usage.since).count() : 0;
}

}  // namespace

double JobUsage::gpu_hours(Time now) const { return (gpu_seconds + gpus * seconds_held(*this, now)) / kSecondsPerHour; }

std::optional<double> JobUsage::total_cost(Time now) const {
  if (!cost && !cost_per_hour) return {};
  return cost.value_or(0) + cost_per_hour.value_or(0) * seconds_held(*this, now) / kSecondsPerHour;
}

void JobUsage::hold(double new_gpus, std::optional<double> new_cost_per_hour, Time now) {
  release(now);
  gpus = new_gpus;
  cost_per_hour = new_cost_per_hour;
  since = now;
}

void JobUsage::release(Time now) { *this = {.gpu_seconds = gpu_hours(now) * kSecondsPerHour, .cost = total_cost(now)}; }

JobUsage parse_usage(const json& job) {
  JobUsage usage{.gpu_seconds = amount(job, "gpuSeconds").value_or(0), .cost = amount(job, "cost")};
  usage.since = time_field(job, {"status", "usage", "since"});
  if (!usage.since) return usage;
  usage.gpus = amount(job, "gpus").value_or(0);
  usage.cost_per_hour = amount(job, "costPerHour");
  return usage;
}

json to_json(const JobUsage& usage) {
  json result{{"gpuSeconds", usage.gpu_seconds}};
  if (usage.cost) result["cost"] = *usage.cost;
  if (!usage.since) return result;
  result["gpus"] = usage.gpus;
  if (usage.cost_per_hour) result["costPerHour"] = *usage.cost_per_hour;
  result["since"] = to_string(*usage.since);
  return result;
}

}  // namespace adaptdl::kube
