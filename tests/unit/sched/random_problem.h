// Problems for policies, drawn at random: ordinary ones, and such as no one should ask.
#pragma once

#include <random>

#include "policy/policy.h"

namespace adaptdl::sched {

// Ordinary: as the traces of the Pollux paper have them. A cluster of one kind of node, jobs that scale more or less
// well and are anywhere between just submitted and long trained, some of them running.
struct OrdinaryShape {
  int jobs = 10, nodes = 16, gpus = 4;
  double running = 0.5;  // the part of jobs that has an allocation, as far as there is room
};
Problem ordinary_problem(std::mt19937_64& random, const OrdinaryShape& shape);

// A speedup function with parameters in the range of the paper's applications.
std::shared_ptr<const SpeedupFunction> ordinary_speedup(std::mt19937_64& random);

// Any: of up to 40 jobs and 24 nodes, with one to three types of resources, minimums, pinned jobs, preemptible nodes
// and maybe a template; in about half of them something is hostile: no jobs, no nodes, amounts that are zero, negative
// or enormous, jobs that fit nowhere, minimums over the maximum or the capacity, parameters that are not finite,
// previous allocations of jobs and on nodes that are gone, or beyond capacity.
Problem any_problem(std::mt19937_64& random);

}  // namespace adaptdl::sched
