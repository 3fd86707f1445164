// Formats the results of simulations, as a table for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "simulator/simulator.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// Columns that not every simulation has.
struct ResultColumns {
  bool node_hours = false;  // of clusters that change their size
  bool costs = false;       // of nodes with prices
};

// Returns a row per simulation. With several workloads, a row "mean" per policy follows, with the means of its rows.
Table result_table(std::span<const sched::SimulationResult> results, const ResultColumns& columns);

// Returns an array with one object per simulation: workload, policy, average_jct_s, p50_jct_s, p99_jct_s, makespan_s,
// restarts_per_job, gpu_hours, worst_ftf, and with `costs` also cost and node_cost.
nlohmann::ordered_json result_json(std::span<const sched::SimulationResult> results, bool costs);

}  // namespace adaptdl::cli
