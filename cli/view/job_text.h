// Formats everything that is known about one run or job as text for users.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/jobs/job_index.h"
#include "local/record/run_status.h"

namespace adaptdl::cli {

// Describes a local run.
std::string run_text(const sched::RunStatus& run, kube::Time now);

// Describes a job. `object` is the AdaptDLJob; `events` are the events about the job and its pods.
std::string job_text(const nlohmann::json& object, const kube::JobView& view, std::vector<kube::Event> events,
                     const std::string& context, kube::Time now);

// The training speed that a job's hints predict for its current replicas.
struct PredictedSpeed {
  double goodput;  // useful samples per second
  double speedup;  // relative to the goodput of a single replica
  double batch;    // the best batch size
};
// Returns nullopt until enough has been measured.
std::optional<PredictedSpeed> predicted_speed(const kube::JobView& view);

}  // namespace adaptdl::cli
