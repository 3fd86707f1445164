#include "policy/base/assignment_program.h"

#include "base/embedded_library.h"
#include "policy/base/assignment_solver.h"

namespace adaptdl::sched {
namespace {

decltype(&adaptdl_solve_assignment) solver() {
  static const auto function = reinterpret_cast<decltype(&adaptdl_solve_assignment)>(load_function(
      {kAssignmentSolver, "integer programs", "COIN-OR's CBC (on Debian and Ubuntu: apt-get install coinor-cbc)"},
      "adaptdl_solve_assignment"));
  return function;
}

}  // namespace

void load_assignment_solver() { solver(); }

std::vector<int> solve_assignment(const AssignmentProgram& program) {
  std::vector<int> taken;
  solver()(program, taken);
  return taken;
}

}  // namespace adaptdl::sched
