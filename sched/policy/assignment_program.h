// A small integer program: each group takes at most one of its options, and the options taken keep within capacities.
//
//   minimise    sum of the costs of the options taken
//   subject to  at most one option a group, and for each resource: sum of what is used <= capacity
//
// Solved by branch and bound with COIN-OR's CBC. It stops at a gap of a millionth, or after a number of nodes of the
// search tree (not after a time, so that the answer is the same on every machine); beyond that the best found counts.
//
// Threading: free of state. Deterministic.
#pragma once

#include <utility>
#include <vector>

namespace adaptdl::sched {

struct AssignmentOption {
  double cost = 0;                           // finite; only one below 0 is ever taken
  std::vector<std::pair<int, double>> uses;  // (resource, amount >= 0), each resource once
};

struct AssignmentProgram {
  std::vector<std::vector<AssignmentOption>> groups;
  std::vector<double> capacity;  // by resource
};

// The option of each group, -1 for none. Throws Error if CBC is not installed.
std::vector<int> solve_assignment(const AssignmentProgram& program);

// Throws the same error early. CBC is otherwise loaded at the first program.
void load_assignment_solver();

}  // namespace adaptdl::sched
