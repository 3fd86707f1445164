// How the program of a trial receives its parameters.
//
// In an argument, {NAME} stands for the value of a parameter, and {{ and }} are literal braces. An argument that names
// a parameter that the trial does not have is omitted; if it begins with '{', an option directly before it is omitted
// as well, as in "--momentum {momentum}". Each value is also in an environment variable (ADAPTDL_PARAM_LR for lr), and
// all of them are in a JSON file that ADAPTDL_PARAMS_FILE names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tune/space.h"

namespace adaptdl::sched::tune {

// Throws UsageError if an argument names a parameter that the space does not have or has an unmatched brace, or if two
// parameters have the same environment variable.
void check_command(const std::vector<std::string>& command, const Space& space);

// Returns the command of a trial with these values, fixed ones included. REQUIRES that check_command() accepts it.
std::vector<std::string> make_command(const std::vector<std::string>& command, const Values& values);

// Returns the ADAPTDL_PARAM_* variables for the values.
std::vector<std::pair<std::string, std::string>> parameter_variables(const Values& values);

}  // namespace adaptdl::sched::tune
