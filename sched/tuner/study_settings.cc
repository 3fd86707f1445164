#include "tuner/study_settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "adaptdl/error.h"
#include "tune/study/command_template.h"
#include "tune/study/space_text.h"
#include "tuner/trial_shares.h"

namespace adaptdl::sched::tune {

using nlohmann::json;

std::optional<double> max_device_seconds(const StudySettings& settings) {
  constexpr double kSecondsPerHour = 3600;
  return settings.gpu_hours > 0 ? std::optional(settings.gpu_hours * kSecondsPerHour) : std::nullopt;
}

std::vector<std::string> run_options(const StudySettings& settings) {
  std::vector<std::string> words{"--replicas", fmt::format("{}:{}", settings.min_replicas, settings.max_replicas),
                                 "--start-replicas", std::to_string(settings.min_replicas)};
  for (const auto& [option, value] : {std::pair("--devices", &settings.devices),
                                      {"--device-kind", &settings.device_kind},
                                      {"--checkpoint-every", &settings.checkpoint_every}})
    if (!value->empty()) words.insert(words.end(), {option, *value});
  return words;
}

static json to_json(const ClusterSettings& cluster) {
  return {
      {"context", cluster.context}, {"namespace", cluster.name_space},        {"study_id", cluster.study_id},
      {"job", cluster.job},         {"storage_class", cluster.storage_class}, {"storage_size", cluster.storage_size}};
}

static ClusterSettings cluster_settings(const json& fields) {
  ClusterSettings cluster;
  fields.at("context").get_to(cluster.context);
  fields.at("namespace").get_to(cluster.name_space);
  fields.at("study_id").get_to(cluster.study_id);
  fields.at("job").get_to(cluster.job);
  fields.at("storage_class").get_to(cluster.storage_class);
  fields.at("storage_size").get_to(cluster.storage_size);
  return cluster;
}

json to_json(const StudySettings& settings) {
  json fields{{"space", to_json(settings.space)},
              {"metric", settings.metric},
              {"command", settings.command},
              {"directory", settings.directory.string()},
              {"sampler", settings.sampler},
              {"pruner", settings.pruner},
              {"factor", settings.factor},
              {"seed", settings.seed},
              {"trials", settings.trials},
              {"gpu_hours", settings.gpu_hours},
              {"parallel", settings.parallel},
              {"min_replicas", settings.min_replicas},
              {"max_replicas", settings.max_replicas},
              {"devices", settings.devices},
              {"device_kind", settings.device_kind},
              {"checkpoint_every", settings.checkpoint_every},
              {"share", settings.share},
              {"never", settings.space.never}};
  if (settings.cluster) fields["cluster"] = to_json(*settings.cluster);
  return fields;
}

StudySettings settings_of(const Study& study) {
  const auto kept = study.user_attributes.find(kSettings);
  if (kept == study.user_attributes.end())
    throw Error(fmt::format("study '{}' was not created by `adaptdl tune`", study.name));
  try {
    const json& all = kept->second;
    StudySettings settings;
    settings.space = parse_space(all.at("space"), [](const auto& at) { return "space" + at.to_string(); }).space;
    settle(settings.space);
    all.at("never").get_to(settings.space.never);
    all.at("metric").get_to(settings.metric);
    all.at("command").get_to(settings.command);
    settings.directory = all.at("directory").get<std::string>();
    all.at("sampler").get_to(settings.sampler);
    all.at("pruner").get_to(settings.pruner);
    all.at("factor").get_to(settings.factor);
    all.at("seed").get_to(settings.seed);
    all.at("trials").get_to(settings.trials);
    // Studies created by earlier versions do not have this setting.
    settings.gpu_hours = all.value("gpu_hours", 0.0);
    all.at("parallel").get_to(settings.parallel);
    all.at("min_replicas").get_to(settings.min_replicas);
    all.at("max_replicas").get_to(settings.max_replicas);
    all.at("devices").get_to(settings.devices);
    all.at("device_kind").get_to(settings.device_kind);
    all.at("checkpoint_every").get_to(settings.checkpoint_every);
    // Studies created by earlier versions do not have this setting, either.
    settings.share = all.value("share", settings.share);
    if (all.contains("cluster")) settings.cluster = cluster_settings(all.at("cluster"));
    if (!find_share_mode(settings.share)) throw Error(fmt::format("invalid share mode '{}'", settings.share));
    if (settings.factor < 2 || settings.parallel < 1 || settings.command.empty() || settings.metric.empty() ||
        settings.gpu_hours < 0)
      throw Error("a value is out of range");
    check_command(settings.command, settings.space);
    return settings;
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("study '{}' has invalid settings in its attribute {}: {}", study.name, kSettings, error.what()));
  }
}

}  // namespace adaptdl::sched::tune
