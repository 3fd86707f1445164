// Sia: a policy for clusters of several GPU types (Jayaram Subramanya et al., SOSP 2023).
//
// A job can have any of a few configurations: a GPU type, and a power of two of replicas within a node or as many as
// fill several nodes. Each has a goodput, by the job's own model with the time of computation divided by the speed of
// the type. It is counted relative to the job's least one, times a restart factor where a change costs a restart:
//
//   u(job, configuration) = (r G(job, configuration) / min G(job))^p,   r = max(age - restarts S, 0) / (age + S)
//
// with S the restart cost and p the fairness. Each cycle an integer program picks at most one configuration a job, with
// the least sum of u for p < 0 (the largest for p > 0), within the capacity of each type. A job without any counts its
// worst one and a half more (the paper: a tenth), so that new jobs start before others grow. Its choices are then
// placed on nodes, where they were if possible. What does not fit, because nodes are partly taken, gets the best that
// does.
//
// The cluster's size is left as it is. docs/scheduling.md has more.
#pragma once

#include <memory>

#include "policy/policies.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// Keeps no state from cycle to cycle. Takes restart_cost and fairness from the options. Throws Error if CBC, which
// solves the integer program, is not installed.
std::unique_ptr<Policy> make_sia(const PolicyOptions& options);

}  // namespace adaptdl::sched
