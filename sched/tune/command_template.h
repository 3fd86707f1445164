// The program of a study's trials: how each gets its parameters.
//
// Arguments have {NAME} in place of values; {{ and }} are braces. An argument that names a parameter that a trial does
// not have is left out, and so is an option before it: "--momentum {momentum}". Each value is also in the environment,
// lr as ADAPTDL_PARAM_LR, and all of them in a JSON file that ADAPTDL_PARAMS_FILE names.
//
// Threading: functions of their arguments.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tune/space.h"

namespace adaptdl::sched::tune {

// Throws UsageError if an argument names a parameter that the space does not have, or has a brace without its match;
// and if two parameters have the same environment variable.
void check_command(const std::vector<std::string>& command, const Space& space);

// The command of a trial with these values, fixed ones included. REQUIRES check_command().
std::vector<std::string> make_command(const std::vector<std::string>& command, const Values& values);

// ADAPTDL_PARAM_* of the values.
std::vector<std::pair<std::string, std::string>> parameter_variables(const Values& values);

}  // namespace adaptdl::sched::tune
