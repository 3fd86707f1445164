// A small integer program: each group takes at most one of its options, and all options taken fit into the capacities.
//
//   minimise    sum of the costs of the options taken
//   subject to  at most one option per group, and for each resource: sum of the amounts used <= capacity
//
// COIN-OR's CBC solves it by branch and bound. It stops at a gap of a millionth, or after a fixed number of nodes of
// the search tree with the best solution found. There is no time limit, so the answer is the same on every machine.
#pragma once

#include <utility>
#include <vector>

namespace adaptdl::sched {

struct AssignmentOption {
  double cost = 0;                           // finite; an option is only taken if it is below 0
  std::vector<std::pair<int, double>> uses;  // pairs of resource and amount >= 0, each resource once
};

struct AssignmentProgram {
  std::vector<std::vector<AssignmentOption>> groups;
  std::vector<double> capacity;  // by resource
};

// Returns the index of the option that each group takes, -1 for none. Throws Error if CBC is not installed.
std::vector<int> solve_assignment(const AssignmentProgram& program);

// Loads CBC, which solve_assignment() otherwise does on its first call, so that the error is thrown early.
void load_assignment_solver();

}  // namespace adaptdl::sched
