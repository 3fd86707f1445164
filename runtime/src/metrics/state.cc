#include "metrics/state.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace adaptdl::metrics {
namespace {

using nlohmann::json;

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

template <typename T>
std::optional<T> optional(const json& value) {
  if (value.is_null()) return {};
  return value.get<T>();
}

json to_json(const goodput::PerfParams& perf) {
  return {perf.alpha_c, perf.beta_c, perf.alpha_n, perf.beta_n, perf.alpha_r, perf.beta_r, perf.gamma};
}

goodput::PerfParams perf_from(const json& value) {
  return {value.at(0), value.at(1), value.at(2), value.at(3), value.at(4), value.at(5), value.at(6)};
}

json to_json(const BatchSizes& sizes) {
  const goodput::Limits& limits = sizes.limits;
  return {{"init", sizes.init_batch_size},
          {"max", or_null(limits.max_batch_size)},
          {"min_local", or_null(limits.min_local_bsz)},
          {"max_local", or_null(limits.max_local_bsz)},
          {"accumulation", limits.accumulation}};
}

BatchSizes sizes_from(const json& value) {
  return {value.at("init"),
          {optional<std::size_t>(value.at("max")), optional<std::size_t>(value.at("min_local")),
           optional<std::size_t>(value.at("max_local")), value.at("accumulation")}};
}

}  // namespace

void MetricsState::save(checkpoint::Writer& writer) const {
  json grad = json::object();
  for (const auto& [model, params] : measured.grad) grad[model] = {params.sqr, params.var};
  writer.json("profile", measured.profile.to_json());
  writer.json("perf_params", measured.perf ? to_json(*measured.perf) : json());
  writer.json("grad_params", std::move(grad));
  writer.json("progress", measured.progress);
  writer.json("target_progress", or_null(measured.target_progress));
  writer.json("batch_sizes", measured.batch_sizes ? to_json(*measured.batch_sizes) : json());
}

void MetricsState::load(const checkpoint::Reader& reader) {
  Measured read;
  try {
    read.profile = Profile::from_json(reader.json("profile"));
    if (const json perf = reader.json("perf_params"); !perf.is_null()) read.perf = perf_from(perf);
    const json grad = reader.json("grad_params");
    for (const auto& [model, params] : grad.items())
      read.grad[model] = {params.at(0), params.at(1)};
    reader.json("progress").get_to(read.progress);
    read.target_progress = optional<double>(reader.json("target_progress"));
    if (const json sizes = reader.json("batch_sizes"); !sizes.is_null()) read.batch_sizes = sizes_from(sizes);
  } catch (const json::exception& error) {
    throw checkpoint::CheckpointError(fmt::format("{}: invalid metrics state: {}", reader.describe(), error.what()));
  }
  measured = std::move(read);
}

}  // namespace adaptdl::metrics
