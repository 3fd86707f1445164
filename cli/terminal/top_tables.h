// Formats what `adaptdl top` shows of a cluster: its nodes and the jobs on them, as tables and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/allocator.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// Returns a row for each node, by name: NODE STATE GPUS JOBS. STATE is ready, cordoned, leaving (about to be removed)
// or "not ready". GPUS is what all pods hold, of what the node has; CPUS takes its place if no node has GPUs. JOBS
// lists the jobs with pods there and their numbers of pods, and as "others" the GPUs of other workloads.
Table nodes_table(const sched::AllocatorCluster& cluster);

// Returns a row for each job that has nodes, by name: JOB REPLICAS NODES GPUS GOODPUT. GPUS is what its pods hold.
// GOODPUT is in samples per second, by the job's model, and "-" until the job has been measured.
Table jobs_on_nodes_table(const sched::AllocatorCluster& cluster);

// Returns both as an object with arrays `nodes` and `jobs`. Amounts are in the units of Kubernetes, CPUs in cores.
nlohmann::json top_json(const sched::AllocatorCluster& cluster);

}  // namespace adaptdl::cli
