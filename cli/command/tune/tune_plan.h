// The options of `adaptdl tune`, and the study that they describe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "command/base/cluster_options.h"
#include "command/run/run_plan.h"
#include "tuner/study_settings.h"

namespace adaptdl::cli {

// The options as given on the command line; an option that was not given is empty.
struct TuneOptions {
  std::string study, space, metric, trials, parallel, time, gpu_hours, share, sampler, pruner, factor, seed, storage;
  std::string min_replicas, max_replicas, devices, device_kind, checkpoint_every;
  std::vector<std::string> parameters;                       // NAME=VALUES
  std::vector<std::string> program;                          // the program and its arguments
  std::string job_file, image, storage_class, storage_size;  // with `cluster`
  ClusterOptions cluster_options;
  bool cluster = false, resume = false, dry_run = false, json = false;
};

struct TunePlan {
  std::string study;
  sched::tune::Direction direction = sched::tune::Direction::kMaximize;
  sched::tune::StudySettings settings;
  int devices = 1;  // number of devices that trials may use
  std::optional<std::chrono::milliseconds> time;
  bool json = false;  // report events as JSON
};

// Plans a new study. Reads the --space file, and checks everything that can be checked without running anything. Throws
// UsageError on the first invalid option.
TunePlan make_plan(const TuneOptions& options, const Machine& machine);

// Plans the resumption of a study: the options that may change override the study's settings. Throws UsageError for
// other options, and if the study's program or devices do not exist. REQUIRES that the current directory is the
// directory in the study's settings.
TunePlan make_plan(const TuneOptions& options, const sched::tune::Study& study, const Machine& machine);

}  // namespace adaptdl::cli
