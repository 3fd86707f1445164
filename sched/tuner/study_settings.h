// The settings of a study, stored so that the study can be resumed without specifying them again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tune/study/space.h"
#include "tune/study/study.h"

namespace adaptdl::sched::tune {

// The user attribute of a study that stores its settings.
inline constexpr char kSettings[] = "adaptdl:settings";

// The settings of a study whose trials are cluster jobs.
struct ClusterSettings {
  std::string context, name_space;          // context from the kubeconfig; namespace of the jobs
  std::string study_id;                     // random; see cluster_tuner/trial_job.h
  std::string job;                          // the AdaptDLJob of each trial, as JSON, without its program
  std::string storage_class, storage_size;  // for the job's volume; if empty, the defaults of `adaptdl submit` apply
};

struct StudySettings {
  Space space;
  std::string metric;
  std::vector<std::string> command;  // with {NAME} for parameters
  std::filesystem::path directory;   // working directory of the command; absolute
  std::string sampler = "tpe", pruner = "asha";
  int factor = 4;  // the pruner's factor
  std::uint64_t seed = 0;
  int trials = 64;
  double gpu_hours = 0;                                // device-hours after which the search stops; 0 for no limit
  int parallel = 0;                                    // trials at the same time; 0 if not decided yet
  int min_replicas = 1, max_replicas = 0;              // per trial; 0 if not decided yet
  std::string devices, device_kind, checkpoint_every;  // same as for `adaptdl run`; if empty, its defaults apply
  std::string share = "goodput";                       // see trial_shares.h
  std::optional<ClusterSettings> cluster;              // if unset, the trials run on this machine
};

// Returns how many device-seconds the trials may use, or nullopt if there is no limit.
std::optional<double> max_device_seconds(const StudySettings& settings);

// Returns a trial's options for `adaptdl run`.
std::vector<std::string> run_options(const StudySettings& settings);

nlohmann::json to_json(const StudySettings& settings);

// Reads a study's settings. Throws Error if `adaptdl tune` did not create the study or its settings are invalid.
StudySettings settings_of(const Study& study);

}  // namespace adaptdl::sched::tune
