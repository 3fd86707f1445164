// Translates a job's scheduling hints into a policy's input.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "policy/base/policy.h"

namespace adaptdl::sched {

// Sets what the hints report: speedup (once step times, gradients and the batch size are known), profiled_replicas and
// progress. Also lowers max_replicas to the number of replicas across which the largest batch size can be split, but
// not below min_replicas. If limits contradict each other, the job is treated as one that has not been measured.
// REQUIRES hints that passed check_sched_hints().
void apply_hints(const nlohmann::json& hints, JobInfo& job);

}  // namespace adaptdl::sched
