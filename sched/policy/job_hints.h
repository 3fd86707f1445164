// A job's scheduling hints in the terms of a policy.
//
// Threading: free of state.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "policy/policy.h"

namespace adaptdl::sched {

// Fills in what hints that passed check_sched_hints say: speedup (once step times, gradients and the batch size are
// known), profiled_replicas and progress; and lowers max_replicas to the replicas that the largest batch size can be
// split over, but not below min_replicas. Limits that contradict each other leave the job as one that was not measured.
void apply_hints(const nlohmann::json& hints, JobInfo& job);

}  // namespace adaptdl::sched
