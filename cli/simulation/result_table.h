// Formats simulation results, as a table for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "simulator/simulator.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// Columns that only some simulations have.
struct ResultColumns {
  bool node_hours = false;  // for clusters whose size changes
  bool costs = false;       // for nodes with prices
};

// Returns a row per simulation. If there are several workloads, one row "mean" per policy follows, with the means of
// the policy's rows.
Table result_table(std::span<const sched::SimulationResult> results, const ResultColumns& columns);

// Returns an array with one object per simulation: workload, policy, average_jct_s, p50_jct_s, p99_jct_s, makespan_s,
// restarts_per_job, gpu_hours, worst_ftf, and, with `costs`, also cost and node_cost.
nlohmann::ordered_json result_json(std::span<const sched::SimulationResult> results, bool costs);

}  // namespace adaptdl::cli
