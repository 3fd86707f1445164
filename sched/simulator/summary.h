// Computes a simulation's figures (see SimulationResult).
#pragma once

#include <vector>

#include "simulator/simulated_job.h"
#include "simulator/simulator.h"

namespace adaptdl::sched {

// `jobs` are in workload order, and `gpus` is the number of GPUs in the whole cluster.
SimulationResult summarize(const SimulationTask& task, const SimulationOptions& options,
                           const std::vector<SimulatedJob>& jobs, int gpus, double node_seconds);

// Returns the seconds from the start to the end of a job that chooses its own batch sizes and runs undisturbed on
// `replicas` replicas, or as many as it can use if that is fewer, on nodes of the group `nodes`. REQUIRES replicas >=
// 1.
double alone_time(const WorkloadJob& job, int replicas, const NodeGroup& nodes, const SimulationOptions& options);

// Returns the smallest value v such that at least `fraction` of the values are at most v, or 0 if there are no values.
// REQUIRES 0 < fraction <= 1.
double nearest_rank(std::vector<double> values, double fraction);

}  // namespace adaptdl::sched
