// Formats everything that is known about one run or job as text for users.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
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

// Describes the training speed that the job's hints predict. Returns "" until enough has been measured.
std::string goodput_text(const nlohmann::json& train, int nodes, int replicas);

}  // namespace adaptdl::cli
