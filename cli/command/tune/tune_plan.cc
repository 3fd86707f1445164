#include "command/tune/tune_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "base/utf8.h"
#include "command/base/numbers.h"
#include "command/tune/tune_cluster.h"
#include "command/tune/tune_sampler.h"
#include "kube/api/file.h"
#include "kube/api/yaml_documents.h"
#include "tune/pruner/pruner.h"
#include "tune/study/command_template.h"
#include "tune/study/space_text.h"
#include "tuner/trial_shares.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

constexpr int kMaxTrials = 1'000'000;

int parse_tune_count(const std::string& text, const std::string& option, int max) {
  return parse_number(text, "tune: " + option, 1, max, "an integer");
}

tune::SpaceFile read_space(const std::string& file) {
  std::string text;
  try {
    text = kube::read_file(file, "search space");
  } catch (const Error& error) {
    throw UsageError(fmt::format("tune: {}", error.what()));
  }
  const kube::YamlDocument document = kube::parse_yaml_document(text, file);
  return tune::parse_space(document.value, [&](const auto& pointer) { return document.place(pointer); });
}

// Parses text such as "accuracy:max".
void set_metric(TunePlan& plan, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string goal = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (colon == 0 || (goal != "max" && goal != "min"))
    throw UsageError(fmt::format("tune: invalid --metric '{}': expected NAME:max or NAME:min", text));
  plan.settings.metric = text.substr(0, colon);
  for (const char* const reserved : {"step", "epoch", "progress"})
    if (plan.settings.metric == reserved)
      throw UsageError(
          fmt::format("tune: invalid --metric '{}'; '{}' is reserved for the training progress", text, reserved));
  plan.direction = goal == "max" ? tune::Direction::kMaximize : tune::Direction::kMinimize;
}

// The storage is JSON and therefore UTF-8. Parameters were checked when they were read.
void check_text(const tune::StudySettings& settings) {
  if (!is_utf8(settings.metric) ||
      !std::ranges::all_of(settings.command, [](const auto& word) { return is_utf8(word); }))
    throw UsageError("tune: metric and program must be valid UTF-8");
}

// Plans a trial's run like `adaptdl run`. Errors name this command.
sched::LaunchPlan make_trial_plan(const RunOptions& run, const Machine& machine) {
  try {
    return make_plan(run, machine);
  } catch (const UsageError& error) {
    const std::string text = error.what(), prefix = "run: ";
    throw UsageError(text.starts_with(prefix) ? "tune: " + text.substr(prefix.size()) : text);
  }
}

// Sets how each trial runs, as far as the options specify it. Plans a trial, to check the program and the devices.
void set_run_settings(TunePlan& plan, const TuneOptions& options, const Machine& machine) {
  tune::StudySettings& settings = plan.settings;
  if (!options.devices.empty()) settings.devices = options.devices;
  if (!options.device_kind.empty()) settings.device_kind = options.device_kind;
  if (!options.checkpoint_every.empty()) settings.checkpoint_every = options.checkpoint_every;
  RunOptions run;
  run.replicas = "1:1";
  run.devices = settings.devices;
  run.device_kind = settings.device_kind;
  run.checkpoint_every = settings.checkpoint_every;
  run.no_checkpoint = settings.checkpoint_every.empty();
  run.program = settings.command;
  const int devices = static_cast<int>(make_trial_plan(run, machine).devices.size());
  plan.devices = devices;
  if (!options.min_replicas.empty())
    settings.min_replicas = parse_tune_count(options.min_replicas, "--min-replicas", kMaxRunReplicas);
  if (!options.max_replicas.empty())
    settings.max_replicas = parse_tune_count(options.max_replicas, "--max-replicas", kMaxRunReplicas);
  if (settings.max_replicas == 0) settings.max_replicas = devices;
  if (settings.min_replicas > settings.max_replicas)
    throw UsageError(
        fmt::format("tune: the minimum number of replicas ({}) must not be greater than the maximum ({})",
                    settings.min_replicas, settings.max_replicas));
  if (settings.min_replicas > devices)
    throw UsageError(fmt::format("tune: --min-replicas must be at most the number of devices ({}), not {}", devices,
                                 settings.min_replicas));
  if (!options.parallel.empty() && options.parallel != "auto")
    settings.parallel = parse_tune_count(options.parallel, "--parallel", kMaxRunReplicas);
  else if (options.parallel == "auto" || settings.parallel == 0)
    settings.parallel = devices / settings.min_replicas;
}

void check_resume_options(const TuneOptions& options) {
  std::string fixed = options.program.empty() ? "" : "the program";
  if (!options.parameters.empty()) fixed = "-P";
  for (const auto& [name, value] : {std::pair("--space", &options.space),
                                    {"--metric", &options.metric},
                                    {"--sampler", &options.sampler},
                                    {"--pruner", &options.pruner},
                                    {"--factor", &options.factor},
                                    {"--seed", &options.seed},
                                    {"--storage", &options.storage}})
    if (!value->empty()) fixed = name;
  if (!fixed.empty()) throw UsageError(fmt::format("tune: --resume cannot change {0}; omit {0}", fixed));
}

double parse_hours(const std::string& text) {
  double hours = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hours);
  if (error != std::errc() || end != text.data() + text.size() || !(hours > 0) || !std::isfinite(hours))
    throw UsageError(fmt::format("tune: invalid --gpu-hours '{}': expected a number greater than 0, such as 40", text));
  return hours;
}

// Sets the limits and settings that may change when a study is resumed.
void set_limits(TunePlan& plan, const TuneOptions& options) {
  plan.json = options.json;
  if (!options.trials.empty()) plan.settings.trials = parse_tune_count(options.trials, "--trials", kMaxTrials);
  if (!options.gpu_hours.empty()) plan.settings.gpu_hours = parse_hours(options.gpu_hours);
  if (!options.share.empty()) plan.settings.share = options.share;
  if (!tune::find_share_mode(plan.settings.share))
    throw UsageError(
        fmt::format("tune: invalid --share '{}': expected goodput, promise or equal", plan.settings.share));
  if (options.time.empty()) return;
  plan.time = env::parse_duration(options.time, "tune: --time");
  if (plan.time->count() == 0) throw UsageError("tune: --time must be greater than 0, such as 2h");
}

}  // namespace

TunePlan make_plan(const TuneOptions& options, const Machine& machine) {
  if (options.program.empty()) throw UsageError("tune: no program given (see `adaptdl help tune`)");
  if (options.metric.empty()) throw UsageError("tune: no --metric given; expected NAME:max or NAME:min");
  TunePlan plan;
  tune::StudySettings& settings = plan.settings;
  plan.study = options.study;
  set_metric(plan, options.metric);
  std::optional<std::uint64_t> seed;
  if (!options.space.empty()) {
    tune::SpaceFile file = read_space(options.space);
    settings.space = std::move(file.space);
    seed = file.seed;
  }
  try {
    for (const std::string& parameter : options.parameters) tune::add_parameter(settings.space, parameter);
    tune::settle(settings.space);
    tune::check_command(options.program, settings.space);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("tune: {}", error.what()));
  }
  if (!options.seed.empty())
    seed = parse_number<std::uint64_t>(options.seed, "tune: --seed", 0, UINT64_MAX, "an integer");
  settings.seed = seed ? *seed : std::random_device()();
  settings.command = options.program;
  settings.directory = std::filesystem::current_path();
  if (!options.sampler.empty()) settings.sampler = options.sampler;
  if (!options.pruner.empty()) settings.pruner = options.pruner;
  if (!options.factor.empty()) settings.factor = parse_number(options.factor, "tune: --factor", 2, 100, "an integer");
  check_study_sampler(settings);
  tune::make_pruner(settings.pruner);
  if (options.cluster) {
    set_cluster_settings(plan, options);
  } else {
    refuse_cluster_options(options);
    set_run_settings(plan, options, machine);
  }
  set_limits(plan, options);
  check_text(settings);
  return plan;
}

TunePlan make_plan(const TuneOptions& options, const tune::Study& study, const Machine& machine) {
  check_resume_options(options);
  TunePlan plan;
  plan.study = study.name;
  plan.direction = study.directions.front();
  plan.settings = tune::settings_of(study);
  if (plan.settings.cluster) {
    check_cluster_resume(options);
    if (!options.parallel.empty())
      plan.settings.parallel = parse_tune_count(options.parallel, "--parallel", kMaxRunReplicas);
  } else {
    if (options.cluster)
      throw UsageError(fmt::format("tune: the trials of study '{}' run on this machine; omit --cluster", study.name));
    refuse_cluster_options(options);
    set_run_settings(plan, options, machine);
  }
  set_limits(plan, options);
  return plan;
}

}  // namespace adaptdl::cli
