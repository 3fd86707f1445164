// Defines how a trial's program receives its parameters.
//
// In an argument, {NAME} is replaced with the parameter's value, and {{ and }} are literal braces. An argument is
// omitted if it names a parameter that the trial does not have; if the omitted argument begins with '{', an option
// directly before it is omitted as well, such as --momentum in "--momentum {momentum}". Each value is also in an
// environment variable (ADAPTDL_PARAM_LR for lr), and all values are in the JSON file whose path is in
// ADAPTDL_PARAMS_FILE.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tune/study/space.h"

namespace adaptdl::sched::tune {

// Throws UsageError if an argument has an unmatched brace or names a parameter that is not in the space, or if two
// parameters have the same environment variable.
void check_command(const std::vector<std::string>& command, const Space& space);

// Returns a trial's command for these values, which include the fixed ones. REQUIRES that check_command() accepts the
// command.
std::vector<std::string> make_command(const std::vector<std::string>& command, const Values& values);

// Returns the ADAPTDL_PARAM_* variables for the values.
std::vector<std::pair<std::string, std::string>> parameter_variables(const Values& values);

}  // namespace adaptdl::sched::tune
