// What a study was started with, kept in its storage so that it can continue without being given again.
//
// Threading: plain values and functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tune/space.h"
#include "tune/study.h"

namespace adaptdl::sched::tune {

// The user attribute of a study that has them.
inline constexpr char kSettings[] = "adaptdl:settings";

// Where the trials of a study are jobs of a cluster.
struct ClusterSettings {
  std::string context, name_space;          // of the kubeconfig
  std::string study_id;                     // drawn at random; see cluster_tuner/trial_job.h
  std::string job;                          // the AdaptDLJob of each trial, as JSON, without its program
  std::string storage_class, storage_size;  // of its volume; empty: as `adaptdl submit` chooses
};

struct StudySettings {
  Space space;
  std::string metric;
  std::vector<std::string> command;  // with {NAME} for parameters
  std::filesystem::path directory;   // in which it is run; absolute
  std::string sampler = "tpe", pruner = "asha";
  int factor = 4;  // of the pruner
  std::uint64_t seed = 0;
  int trials = 64;
  double gpu_hours = 0;                                // after which the search stops, in device-hours; 0: no limit
  int parallel = 0;                                    // trials at the same time; 0: not decided yet
  int min_replicas = 1, max_replicas = 0;              // of a trial; 0: not decided yet
  std::string devices, device_kind, checkpoint_every;  // as of `adaptdl run`; empty: its defaults
  std::string share = "goodput";                       // see trial_shares.h
  std::optional<ClusterSettings> cluster;              // none: the trials run on this machine
};

// How much the trials may use, in device-seconds; none: as much as it takes.
std::optional<double> max_device_seconds(const StudySettings& settings);

// The options of `adaptdl run` for a trial.
std::vector<std::string> run_options(const StudySettings& settings);

nlohmann::json to_json(const StudySettings& settings);

// Throws Error if the study was not created by `adaptdl tune`, or its settings make no sense.
StudySettings settings_of(const Study& study);

}  // namespace adaptdl::sched::tune
