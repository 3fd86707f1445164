// Formats what `adaptdl top` shows: a cluster's nodes and the jobs on them, as tables and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/cluster/allocator.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// Returns a row for each node, sorted by name: NODE STATE GPUS JOBS. STATE is ready, cordoned, leaving (about to be
// removed) or "not ready". GPUS is the total number of GPUs that pods on the node hold, and the number that the node
// has; if no node has GPUs, the column CPUS replaces it. JOBS lists the jobs with pods on the node, each with its
// number of pods, followed by "others" with the number of GPUs that other workloads hold.
Table nodes_table(const sched::AllocatorCluster& cluster);

// Returns a row for each job that has nodes, sorted by name: JOB REPLICAS NODES GPUS GOODPUT. GPUS is the number of
// GPUs that the job's pods hold. GOODPUT is the goodput that the job's model predicts, in samples per second, or "-"
// until the job has been measured.
Table jobs_on_nodes_table(const sched::AllocatorCluster& cluster);

// Returns both tables as an object with arrays `nodes` and `jobs`. Amounts are in Kubernetes units, CPUs in cores.
nlohmann::json top_json(const sched::AllocatorCluster& cluster);

}  // namespace adaptdl::cli
