// A small integer program: each group takes at most one of its options, and all options taken fit into the capacities.
//
//   minimize    sum of the costs of the options taken
//   subject to  at most one option per group, and for each resource: sum of the amounts used <= capacity
//
// COIN-OR's CBC solves it by branch and bound. It stops at a relative gap of a millionth, or after a fixed number of
// search tree nodes, and returns the best solution that it has found. There is no time limit, so the result is the same
// on every machine.
#pragma once

#include <utility>
#include <vector>

namespace adaptdl::sched {

struct AssignmentOption {
  double cost = 0;                           // finite; an option is taken only if its cost is negative
  std::vector<std::pair<int, double>> uses;  // pairs of resource and amount >= 0, each resource at most once
};

struct AssignmentProgram {
  std::vector<std::vector<AssignmentOption>> groups;
  std::vector<double> capacity;  // by resource
};

// Returns the index of the option that each group takes, or -1 if it takes none. Throws Error if CBC is not installed.
std::vector<int> solve_assignment(const AssignmentProgram& program);

// Loads CBC before the first call to solve_assignment(), so that a missing CBC is reported early.
void load_assignment_solver();

}  // namespace adaptdl::sched
