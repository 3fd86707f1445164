// From the words of a command line to the command that they name.
#pragma once

#include <string>
#include <vector>

namespace adaptdl::cli {

// Runs the command that `words` (without the program's own name) ask for and returns its exit code. Throws UsageError
// if they name no command or do not fit its options, and whatever the command throws.
int dispatch(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
