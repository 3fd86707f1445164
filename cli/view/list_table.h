// Formats what `adaptdl ls` lists: local runs, cluster jobs, and jobs in a Ray cluster, as one table.
#pragma once

#include <span>
#include <string>

#include "kube/jobs/job_index.h"
#include "local/record/run_status.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// The cells of one row; "-" if a value is unknown.
struct ListRow {
  std::string name, where, state;
  std::string replicas = "-";  // number of replicas that are running, and the target number
  std::string restarts = "-";
  std::string progress = "-";  // completed part of the training: a percentage, or a count if the total is unknown
  std::string epoch = "-", loss = "-";
  std::string samples = "-", goodput = "-";  // per second
  std::string runtime = "-";
  // Shown by list_table() if `wide` is set.
  std::string age = "-", bounds = "-", batch = "-", gpu_hours = "-", cost = "-", nodes = "-";
  std::string why;
};

ListRow list_row(const sched::RunStatus& run, kube::Time now);
// `where` is the context of the job's cluster. If `namespaces` is set, the name is shown as NAMESPACE/NAME.
ListRow list_row(const kube::JobView& view, const std::string& where, bool namespaces, kube::Time now);

// Returns a table with the columns NAME WHERE STATE REPLICAS RESTARTS PROGRESS EPOCH LOSS SAMPLES/S GOODPUT RUNTIME
// WHY. If `wide` is set, AGE BOUNDS BATCH GPU-HOURS COST NODES come before WHY. If `compact` is set, columns without
// any known value are left out: a terminal then shows more of WHY.
Table list_table(std::span<const ListRow> rows, bool wide, bool compact);

// Returns a job's name, as NAMESPACE/NAME if `namespaces` is set.
std::string job_title(const kube::Job& job, bool namespaces);

}  // namespace adaptdl::cli
