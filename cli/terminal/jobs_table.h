// Runs of this machine and jobs of a cluster in one table.
#pragma once

#include <span>
#include <string>

#include "kube/job_book.h"
#include "local/run_status.h"
#include "terminal/table.h"

namespace adaptdl::cli {

struct JobsTableStyle {
  std::string context;      // what WHERE is of the jobs
  bool namespaces = false;  // names are NAMESPACE/NAME
  bool wide = false;        // BOUNDS, BATCH, GPU-HOURS, COST and NODES besides
};

// A row for each run, then for each job, in their order: NAME WHERE STATUS REPLICAS RESTARTS PROGRESS AGE RUNTIME WHY.
// What is not known is "-".
Table jobs_table(std::span<const sched::RunStatus> runs, std::span<const kube::JobView> jobs,
                 const JobsTableStyle& style, kube::Time now);

// What a job is called in that style.
std::string job_title(const kube::Job& job, bool namespaces);

}  // namespace adaptdl::cli
