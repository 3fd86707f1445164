// What `adaptdl top` shows of a cluster: its nodes and the jobs on them, as tables and as JSON.
//
// Threading: the functions may be called from any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/allocator.h"
#include "terminal/table.h"

namespace adaptdl::cli {

// A row for each node, by name: NODE STATE GPUS JOBS. STATE is ready, cordoned, leaving (about to be removed) or "not
// ready". GPUS is what all pods hold, of what the node has; CPUS takes its place if no node has GPUs. JOBS lists the
// jobs with pods there and the numbers of these pods, and as "others" pods of other workloads that hold GPUs.
Table nodes_table(const sched::AllocatorCluster& cluster);

// A row for each job that has nodes, by name: JOB REPLICAS NODES GPUS GOODPUT. GPUS is what its pods hold. GOODPUT is
// in samples per second, by the job's model, and "-" until the job has been measured.
Table jobs_on_nodes_table(const sched::AllocatorCluster& cluster);

// Both as an object with arrays `nodes` and `jobs`. Amounts are numbers in the units of Kubernetes, CPUs in cores.
nlohmann::json top_json(const sched::AllocatorCluster& cluster);

}  // namespace adaptdl::cli
