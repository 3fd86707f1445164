// Scheduling hints: what a job tells the scheduler about itself (protocol: docs/formats.md).
//
// metrics.h gathers and posts the hints of a job that trains with this package by itself; this is for a program with
// other means of measuring. Threading: may be called from any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace adaptdl {

// Posts hints of the job `namespace/name` to the supervisor: an object with any of the keys initBatchSize,
// localBszBounds, globalBatchSize, maxBatchSize, maxProfiledReplicas, gradientAccumulation, gradParams (norm, var),
// perfParams (alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma), progress, targetProgress and liveRescale. They
// are merged into those posted before; null takes one back.
//
// Does nothing more than check them if there is no supervisor (ADAPTDL_SUPERVISOR_URL). Returns after 10 s at the
// latest. A supervisor that cannot be reached or refuses is a warning in the log. Throws UsageError, naming the key, on
// any other one or a value of another kind, and on a job of another form.
void post_sched_hints(const nlohmann::json& hints, const std::string& job_id);

// The check alone, which a scheduler makes of what it is sent. Batch sizes and replicas are whole numbers of at least 1,
// all others are finite and not negative, gamma is at least 1; null stands for any value. Throws UsageError, naming the
// key.
void check_sched_hints(const nlohmann::json& hints);

}  // namespace adaptdl
