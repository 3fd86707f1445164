// The part of solve_assignment() that is linked with CBC. It is a separate shared library, which is embedded in the
// executable and loaded when it is first needed.
#pragma once

#include <string_view>
#include <vector>

#include "policy/base/assignment_program.h"

extern "C" [[gnu::visibility("default")]] void adaptdl_solve_assignment(
    const adaptdl::sched::AssignmentProgram& program, std::vector<int>& taken);

namespace adaptdl::sched {

extern const std::string_view kAssignmentSolver;  // the library's bytes

}  // namespace adaptdl::sched
