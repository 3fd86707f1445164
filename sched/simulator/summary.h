// The figures of a simulation: see SimulationResult.
//
// Threading: free of state.
#pragma once

#include <vector>

#include "simulator/simulated_job.h"
#include "simulator/simulator.h"

namespace adaptdl::sched {

// `jobs` in the order of the workload; `gpus` is of the whole cluster.
SimulationResult summarize(const SimulationTask& task, const SimulationOptions& options,
                           const std::vector<SimulatedJob>& jobs, int gpus, double node_seconds);

// Seconds from the start to the end of a job that chooses its own batch sizes, undisturbed on that many replicas, or as
// many as it can use, on nodes with so many GPUs of that speed. REQUIRES replicas >= 1.
double alone_time(const WorkloadJob& job, int replicas, const NodeGroup& nodes, const SimulationOptions& options);

// The smallest value that at least `fraction` of the values do not exceed. 0 of none. REQUIRES 0 < fraction <= 1.
double nearest_rank(std::vector<double> values, double fraction);

}  // namespace adaptdl::sched
