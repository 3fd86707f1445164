// Generates random problems for policies, both ordinary and hostile ones.
#pragma once

#include <random>

#include "policy/base/policy.h"

namespace adaptdl::sched {

// An ordinary problem, similar to the traces of the Pollux paper: a cluster with one type of node, and jobs that scale
// to different degrees, and are new or have been training for a long time. Some of the jobs are running.
struct OrdinaryShape {
  int jobs = 10, nodes = 16, gpus = 4;
  double running = 0.5;  // the fraction of jobs that have an allocation, as far as there is room
};
Problem ordinary_problem(std::mt19937_64& random, const OrdinaryShape& shape);

// Returns a speedup function with parameters in the range of the paper's applications.
std::shared_ptr<const SpeedupFunction> ordinary_speedup(std::mt19937_64& random);

// Returns a problem with up to 40 jobs and 24 nodes, with one to three types of resources, minimums, pinned jobs,
// preemptible nodes and possibly a template. About half of the problems are hostile: no jobs, no nodes, amounts that
// are zero, negative or enormous, jobs that fit nowhere, minimums that exceed the maximum or the capacity, parameters
// that are not finite, previous allocations of missing jobs, on missing nodes, or beyond capacity.
Problem any_problem(std::mt19937_64& random);

}  // namespace adaptdl::sched
