// Sia: a policy for clusters with several GPU types (Jayaram Subramanya et al., SOSP 2023).
//
// A job gets one of a few configurations, each a GPU type and a number of replicas: a power of two on one node, or as
// many as fill several nodes. The goodput G of a configuration follows from the job's model, with the computation time
// divided by the speed of the GPU type. G is divided by the job's smallest goodput, and multiplied by r if the
// configuration requires a restart:
//
//   u(job, configuration) = (r G(job, configuration) / min G(job))^p,   r = max((age - restarts S) / (age + S), 0.05)
//
// S is the restart cost and p the fairness. In each cycle, an integer program picks at most one configuration per job
// so that the sum of u is minimal for p < 0 (maximal for p > 0), within the capacity of each type. A job without a
// configuration costs half as much again as its worst configuration (in the paper, a tenth more), so that new jobs
// start before others grow. The choices are then placed on nodes, if possible on the jobs' current nodes. If a job's
// choice does not fit because nodes are partly taken, the job gets the best configuration that does fit.
//
// The policy does not change the cluster's size. For details, see docs/scheduling.md.
#pragma once

#include <memory>

#include "policy/base/policy.h"
#include "policy/search/policy_options.h"

namespace adaptdl::sched {

// The policy keeps no state from cycle to cycle, and uses only the options restart_cost and fairness. Throws Error if
// CBC, which solves the integer program, is not installed.
std::unique_ptr<Policy> make_sia(const PolicyOptions& options);

}  // namespace adaptdl::sched
