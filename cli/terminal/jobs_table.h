// Formats runs of this machine and jobs of a cluster as one table.
#pragma once

#include <span>
#include <string>

#include "kube/job_book.h"
#include "local/run_status.h"
#include "terminal/table.h"

namespace adaptdl::cli {

struct JobsTableStyle {
  std::string context;      // shown as WHERE of the jobs
  bool namespaces = false;  // jobs are named NAMESPACE/NAME
  bool wide = false;        // adds BOUNDS, BATCH, GPU-HOURS, COST and NODES
};

// Returns a row for each run, then for each job, in their order: NAME WHERE STATUS REPLICAS RESTARTS PROGRESS AGE
// RUNTIME WHY. Unknown values are "-".
Table jobs_table(std::span<const sched::RunStatus> runs, std::span<const kube::JobView> jobs,
                 const JobsTableStyle& style, kube::Time now);

// Returns the name of a job in that style.
std::string job_title(const kube::Job& job, bool namespaces);

}  // namespace adaptdl::cli
