#include "adaptdl/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "adaptdl/env.h"
#include "adaptdl/log.h"
#include "metrics/background.h"
#include "metrics/state.h"
#include "protocol/hints_request.h"
#include "protocol/place.h"

namespace adaptdl::metrics {
namespace {

using nlohmann::json;

// Never destroyed automatically, because one of the program's globals may still use it at exit.
std::unique_ptr<MetricsState>& holder() {
  static auto* const state = new std::unique_ptr<MetricsState>();
  return *state;
}

std::function<double()>& clock_override() {
  static auto* const clock = new std::function<double()>();
  return *clock;
}

Measured& measured() {
  auto& state = holder();
  if (!state) {
    auto loaded = std::make_unique<MetricsState>();
    checkpoint::load_state(*loaded);
    state = std::move(loaded);
  }
  return state->measured;
}

// The gradients of several models are treated as the gradients of one model with all their parameters.
std::optional<goodput::GradParams> all_grad_params(const Measured& all) {
  if (all.grad.empty()) return {};
  goodput::GradParams sum;
  for (const auto& [model, params] : all.grad) {
    sum.sqr += params.sqr;
    sum.var += params.var;
  }
  return sum;
}

double furthest(const Measured& all) {
  double most = 0;
  for (const auto& [model, iterations] : all.progress) most = std::max(most, iterations);
  return most;
}

void add_batch_sizes(json& hints, const BatchSizes& sizes) {
  const goodput::Limits& limits = sizes.limits;
  hints["initBatchSize"] = sizes.init_batch_size;
  hints["gradientAccumulation"] = limits.accumulation;
  if (limits.max_batch_size) hints["maxBatchSize"] = *limits.max_batch_size;
  // The hints contain both bounds or neither, because the protocol defines them as a pair.
  if (limits.min_local_bsz || limits.max_local_bsz)
    hints["localBszBounds"] = {limits.min_local_bsz.value_or(1),
                               limits.max_local_bsz.value_or(limits.max_batch_size.value_or(sizes.init_batch_size))};
}

}  // namespace

bool in_use() noexcept { return holder() != nullptr; }

void set_batch_sizes(const BatchSizes& sizes) { measured().batch_sizes = sizes; }

const std::optional<BatchSizes>& batch_sizes() { return measured().batch_sizes; }

void record_step(int nodes, int replicas, std::size_t atomic_bsz, double seconds, std::optional<double> sync) {
  measured().profile.record(nodes, replicas, atomic_bsz, seconds, sync);
}

void set_grad_params(const std::string& model, const goodput::GradParams& params) { measured().grad[model] = params; }

void set_progress(const std::string& model, double iterations) { measured().progress[model] = iterations; }

void set_target_progress(double iterations) { measured().target_progress = iterations; }

double progress() { return furthest(measured()); }

std::optional<double> target_progress() { return measured().target_progress; }

void begin_fit() {
  if (fit_pending()) return;
  auto observations = measured().profile.observations();
  if (!observations.empty()) Background::instance().begin_fit(std::move(observations));
}

bool fit_pending() { return Background::instance().fit_pending(); }

void finish_fit() {
  if (const auto fitted = Background::instance().finish_fit()) measured().perf = fitted;
}

std::optional<goodput::GoodputFunction> goodput_function() {
  const Measured& all = measured();
  auto grad = all_grad_params(all);
  if (!grad && all.batch_sizes && !all.batch_sizes->limits.max_batch_size) grad = goodput::kUnmeasuredGrad;
  if (!all.perf || !grad || !all.batch_sizes) return {};
  return goodput::GoodputFunction(*all.perf, *grad, all.batch_sizes->init_batch_size);
}

json hints() {
  const Measured& all = measured();
  json hints{{"initBatchSize", nullptr}, {"localBszBounds", nullptr},      {"globalBatchSize", nullptr},
             {"maxBatchSize", nullptr},  {"maxProfiledReplicas", nullptr}, {"gradientAccumulation", nullptr},
             {"gradParams", nullptr},    {"perfParams", nullptr},          {"progress", furthest(all)},
             {"targetProgress", nullptr}};
  if (all.batch_sizes) add_batch_sizes(hints, *all.batch_sizes);
  if (const int most = all.profile.max_replicas(); most > 0) hints["maxProfiledReplicas"] = most;
  if (const auto grad = all_grad_params(all)) hints["gradParams"] = {{"norm", grad->sqr}, {"var", grad->var}};
  if (all.perf)
    hints["perfParams"] = {{"alpha_c", all.perf->alpha_c}, {"beta_c", all.perf->beta_c},
                           {"alpha_n", all.perf->alpha_n}, {"beta_n", all.perf->beta_n},
                           {"alpha_r", all.perf->alpha_r}, {"beta_r", all.perf->beta_r},
                           {"gamma", all.perf->gamma}};
  if (all.target_progress) hints["targetProgress"] = *all.target_progress;
  return hints;
}

void report_hints() {
  const auto job = env::job_id();
  if (!job || !env::supervisor_url() || env::replica_rank() != 0) return;
  try {
    auto all = hints();
    // This post may replace a queued announcement, so it repeats the announced value.
    if (env::replica_id()) all["liveRescale"] = generation::place().follows();
    if (auto request = hints_request(all, *job)) Background::instance().post(std::move(*request));
  } catch (const UsageError& error) {
    static std::once_flag once;  // the error does not change
    std::call_once(once, [&] { log::warn(fmt::format("scheduling hints are not being posted: {}", error.what())); });
  }
}

double now() {
  if (const auto& clock = clock_override()) return clock();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void set_clock(std::function<double()> clock) { clock_override() = std::move(clock); }

void reset() {
  Background::instance().forget();
  holder().reset();
  clock_override() = nullptr;
}

}  // namespace adaptdl::metrics
