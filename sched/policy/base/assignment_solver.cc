#include "policy/base/assignment_solver.h"

#include <CbcModel.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>
#include <algorithm>
#include <cmath>

namespace adaptdl::sched {
namespace {

constexpr int kMaxTreeNodes = 200;
constexpr double kGap = 1e-6;  // relative to the best solution

// The option that a column of the program represents.
struct Column {
  int group = 0;
  int option = 0;
};

// The program in the solver's form. Its rows are the resources, followed by the groups.
class Solver {
 public:
  Solver(const AssignmentProgram& program, std::vector<Column> columns);

  // Solves the relaxation, in which options may be taken fractionally. Returns false if the solver fails.
  bool relax();

  const std::vector<Column>& columns() const { return columns_; }
  OsiClpSolverInterface& interface() { return interface_; }

 private:
  std::vector<Column> columns_;
  OsiClpSolverInterface interface_;
};

Solver::Solver(const AssignmentProgram& program, std::vector<Column> columns) : columns_(std::move(columns)) {
  const auto resources = static_cast<int>(program.capacity.size());
  std::vector<double> rows(program.capacity);
  rows.resize(program.capacity.size() + program.groups.size(), 1);
  std::vector<double> cost, values;
  std::vector<int> indices;
  std::vector<CoinBigIndex> starts = {0};
  for (const auto& [group, option] : columns_) {
    const AssignmentOption& taken = program.groups[group][option];
    cost.push_back(taken.cost);
    for (const auto& [resource, amount] : taken.uses) {
      indices.push_back(resource);
      values.push_back(amount);
    }
    indices.push_back(resources + group);
    values.push_back(1);
    starts.push_back(static_cast<CoinBigIndex>(indices.size()));
  }
  const std::vector<double> lower(cost.size(), 0), upper(cost.size(), 1), no_less(rows.size(), -COIN_DBL_MAX);
  interface_.messageHandler()->setLogLevel(0);
  interface_.getModelPtr()->setLogLevel(0);
  interface_.loadProblem(static_cast<int>(cost.size()), static_cast<int>(rows.size()), starts.data(), indices.data(),
                         values.data(), lower.data(), upper.data(), cost.data(), no_less.data(), rows.data());
  for (std::size_t i = 0; i < cost.size(); ++i) interface_.setInteger(static_cast<int>(i));
}

bool Solver::relax() {
  interface_.initialSolve();
  return interface_.isProvenOptimal();
}

// Takes every option that still fits, in descending order of `rank`. The search starts from this result, and returns it
// if it finds nothing better.
std::vector<int> take_in_order(const AssignmentProgram& program, const std::vector<Column>& columns,
                               const std::vector<double>& rank) {
  std::vector<std::size_t> order(columns.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return rank[a] > rank[b]; });
  std::vector<double> left = program.capacity;
  std::vector<int> taken(program.groups.size(), -1);
  for (const std::size_t i : order) {
    const auto [group, option] = columns[i];
    const auto& uses = program.groups[group][option].uses;
    if (taken[group] >= 0 || !std::ranges::all_of(uses, [&](const auto& use) { return use.second <= left[use.first]; }))
      continue;
    for (const auto& [resource, amount] : uses) left[resource] -= amount;
    taken[group] = option;
  }
  return taken;
}

double cost_of(const AssignmentProgram& program, const std::vector<int>& taken) {
  double cost = 0;
  for (std::size_t g = 0; g < taken.size(); ++g) {
    if (taken[g] >= 0) cost += program.groups[g][taken[g]].cost;
  }
  return cost;
}

std::vector<int> taken_columns(const AssignmentProgram& program, const std::vector<Column>& columns,
                               const double* solution) {
  std::vector<int> taken(program.groups.size(), -1);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (solution[i] > 0.5) taken[columns[i].group] = columns[i].option;
  }
  return taken;
}

std::vector<int> solve(const AssignmentProgram& program) {
  std::vector<Column> useful;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    for (std::size_t o = 0; o < program.groups[g].size(); ++o) {
      if (program.groups[g][o].cost < 0) useful.push_back({static_cast<int>(g), static_cast<int>(o)});
    }
  }
  if (useful.empty()) return std::vector<int>(program.groups.size(), -1);
  Solver whole(program, useful);
  if (!whole.relax()) return take_in_order(program, useful, std::vector<double>(useful.size(), 0));

  // The relaxation splits hardly any more groups than there are resources, so its rounded solution is nearly optimal.
  const double* relaxed = whole.interface().getColSolution();
  std::vector<int> best = take_in_order(program, useful, {relaxed, relaxed + useful.size()});
  const double found = cost_of(program, best);
  const double gap = found - whole.interface().getObjValue();
  if (gap <= kGap * std::abs(found)) return best;

  // A solution that takes an option costs at least as much as the relaxation plus the option's reduced cost. Options
  // whose reduced cost is above the gap can therefore be left out, which leaves a small program.
  const double* reduced = whole.interface().getReducedCost();
  std::vector<Column> rest;
  for (std::size_t i = 0; i < useful.size(); ++i) {
    if (reduced[i] <= gap) rest.push_back(useful[i]);
  }
  Solver small(program, std::move(rest));
  CbcModel model(small.interface());
  model.setLogLevel(0);
  model.setMaximumNodes(kMaxTreeNodes);
  model.setAllowableFractionGap(kGap);
  model.setCutoff(found - kGap * std::abs(found));
  model.branchAndBound();
  if (const double* solution = model.bestSolution()) {
    const std::vector<int> taken = taken_columns(program, small.columns(), solution);
    if (cost_of(program, taken) < found) best = taken;
  }
  return best;
}

}  // namespace
}  // namespace adaptdl::sched

void adaptdl_solve_assignment(const adaptdl::sched::AssignmentProgram& program, std::vector<int>& taken) {
  taken = adaptdl::sched::solve(program);
}
