// The figures of simulations, as a table for people and as JSON for programs. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "simulator/simulator.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// A row a simulation; with several workloads, a row "mean" a policy follows, the mean of its rows. `node_hours` adds a
// column of these, for clusters that change their size.
Table result_table(std::span<const sched::SimulationResult> results, bool node_hours);

// An array of an object a simulation: workload policy average_jct_s p50_jct_s p99_jct_s makespan_s restarts_per_job
// gpu_hours worst_ftf.
nlohmann::ordered_json result_json(std::span<const sched::SimulationResult> results);

}  // namespace adaptdl::cli
