#include "policy/base/job_hints.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

std::optional<double> number(const json& hints, const char* name) {
  const auto found = hints.find(name);
  if (found == hints.end() || !found->is_number()) return {};
  return found->get<double>();
}

std::optional<std::size_t> count(const json& value) {
  if (!value.is_number()) return {};
  return static_cast<std::size_t>(value.get<double>());
}

std::optional<std::size_t> count(const json& hints, const char* name) {
  const auto found = hints.find(name);
  return found == hints.end() ? std::nullopt : count(*found);
}

goodput::Limits limits_of(const json& hints) {
  goodput::Limits limits;
  limits.max_batch_size = count(hints, "maxBatchSize");
  if (const auto bounds = hints.find("localBszBounds"); bounds != hints.end() && bounds->is_array()) {
    limits.min_local_bsz = count(bounds->at(0));
    limits.max_local_bsz = count(bounds->at(1));
  }
  const auto accumulation = hints.find("gradientAccumulation");
  limits.accumulation = accumulation != hints.end() && *accumulation == true;
  return limits;
}

std::optional<goodput::GradParams> grad_params(const json& hints, const goodput::Limits& limits) {
  const auto grad = hints.find("gradParams");
  if (grad == hints.end() || grad->is_null())
    return limits.max_batch_size ? std::nullopt : std::optional(goodput::kUnmeasuredGrad);
  if (!grad->is_object()) return {};
  const auto norm = number(*grad, "norm"), var = number(*grad, "var");
  if (!norm || !var) return {};
  return goodput::GradParams{*norm, *var};
}

// Returns null if a hint is missing or the limits contradict each other.
std::shared_ptr<const SpeedupFunction> speedup_of(const json& hints, const goodput::Limits& limits) {
  const auto perf = hints.find("perfParams");
  const auto init_batch_size = count(hints, "initBatchSize");
  const auto grad = grad_params(hints, limits);
  if (perf == hints.end() || !perf->is_object() || !init_batch_size || !grad) return {};
  double values[7];
  const char* const names[7] = {"alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma"};
  for (int i = 0; i < 7; ++i) {
    const auto value = number(*perf, names[i]);
    if (!value) return {};
    values[i] = *value;
  }
  const goodput::PerfParams params{values[0], values[1], values[2], values[3], values[4], values[5], values[6]};
  try {
    return std::make_shared<SpeedupFunction>(goodput::GoodputFunction(params, *grad, *init_batch_size), limits);
  } catch (const UsageError&) {
    return {};
  }
}

}  // namespace

void apply_hints(const json& hints, JobInfo& job) {
  const goodput::Limits limits = limits_of(hints);
  job.speedup = speedup_of(hints, limits);
  job.profiled_replicas =
      static_cast<int>(std::min<std::size_t>(count(hints, "maxProfiledReplicas").value_or(0), kMaxReplicasPerJob));
  job.progress = number(hints, "progress");
  job.target_progress = number(hints, "targetProgress");
  const auto largest = limits.max_batch_size ? limits.max_batch_size : count(hints, "initBatchSize");
  if (!largest) return;
  const std::size_t pieces = *largest / std::max<std::size_t>(limits.min_local_bsz.value_or(1), 1);
  const int max_replicas = static_cast<int>(std::min<std::size_t>(pieces, kMaxReplicasPerJob));
  job.max_replicas = std::max(std::min(job.max_replicas, max_replicas), job.min_replicas);
}

}  // namespace adaptdl::sched
