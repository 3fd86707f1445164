// Formats runs as a table.
#pragma once

#include <span>

#include "local/record/run_status.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// Returns a row for each run, in the given order: NAME STATE REPLICAS EPOCH LOSS BATCH SAMPLES/S GOODPUT RESTARTS TIME
// WHY. Unknown values are "-". TIME is the time from the run's start to its end, or to `now`.
Table runs_table(std::span<const sched::RunStatus> runs, sched::RunStatus::Time now);

}  // namespace adaptdl::cli
