// Sia: a policy for clusters of several GPU types (Jayaram Subramanya et al., SOSP 2023).
//
// A job can have one of a few configurations: a GPU type, and a power of two of replicas within a node or as many as
// fill several nodes. The goodput G of a configuration is that of the job's model, with the computation time divided by
// the speed of the type. It counts relative to the job's smallest goodput, times r where a change costs a restart:
//
//   u(job, configuration) = (r G(job, configuration) / min G(job))^p,   r = max((age - restarts S) / (age + S), 0.05)
//
// S is the restart cost and p the fairness. In each cycle, an integer program picks at most one configuration per job
// so that the sum of u is minimal for p < 0 (maximal for p > 0), within the capacity of each type. A job without one
// counts as its worst one and half as much again (in the paper, a tenth), so that new jobs start before others grow.
// The choices are then placed on nodes, where possible on those that the jobs have now. A job whose choice does not
// fit, because nodes are partly taken, gets the best configuration that does.
//
// The policy does not change the cluster's size. docs/scheduling.md describes it further.
#pragma once

#include <memory>

#include "policy/policies.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// The policy keeps no state from cycle to cycle, and uses only restart_cost and fairness of the options. Throws Error
// if CBC, which solves the integer program, is not installed.
std::unique_ptr<Policy> make_sia(const PolicyOptions& options);

}  // namespace adaptdl::sched
