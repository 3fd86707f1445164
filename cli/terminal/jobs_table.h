// Formats local runs and cluster jobs as one table.
#pragma once

#include <span>
#include <string>

#include "kube/jobs/job_index.h"
#include "local/record/run_status.h"
#include "terminal/table.h"

namespace adaptdl::cli {

struct JobsTableStyle {
  std::string context;      // shown as WHERE for jobs
  bool namespaces = false;  // shows jobs as NAMESPACE/NAME
  bool wide = false;        // adds BOUNDS, BATCH, GPU-HOURS, COST and NODES
};

// Returns a row for each run, followed by a row for each job, in the given order: NAME WHERE STATUS REPLICAS RESTARTS
// PROGRESS AGE RUNTIME WHY. Unknown values are "-".
Table jobs_table(std::span<const sched::RunStatus> runs, std::span<const kube::JobView> jobs,
                 const JobsTableStyle& style, kube::Time now);

// Returns a job's name, as NAMESPACE/NAME if `namespaces` is set.
std::string job_title(const kube::Job& job, bool namespaces);

}  // namespace adaptdl::cli
