// Scheduling hints: the data that a job sends to the scheduler about itself (protocol: docs/formats.md).
//
// A job that trains with this package does not need these functions: metrics.h collects and posts its hints. The
// functions are for programs that take their own measurements. Threading: both may be called from any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace adaptdl {

// Posts hints about the job `job_id`, which has the form `namespace/name`, to the supervisor. `hints` is an object with
// any of the keys initBatchSize, localBszBounds, globalBatchSize, maxBatchSize, maxProfiledReplicas,
// gradientAccumulation, gradParams (norm, var), perfParams (alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma),
// progress, targetProgress and liveRescale. The hints are merged into those posted earlier; null removes a key.
//
// If there is no supervisor (ADAPTDL_SUPERVISOR_URL is unset), only checks the hints. Returns after at most 10 s. If
// the supervisor is unreachable or rejects the hints, a warning is logged. Throws UsageError, naming the key, on an
// unknown key or an invalid value, and, if there is a supervisor, on an invalid `job_id`.
void post_sched_hints(const nlohmann::json& hints, const std::string& job_id);

// Checks the hints without posting them. Throws UsageError, naming the key, if they are invalid. A scheduler must call
// this function to check the hints that it receives. Batch sizes and numbers of replicas must be integers from 1 to
// 2^53, gamma a finite number >= 1, and other numbers finite and >= 0; any value may be null.
void check_sched_hints(const nlohmann::json& hints);

}  // namespace adaptdl
