// Finds the command that a command line names, and runs it.
#pragma once

#include <string>
#include <vector>

namespace adaptdl::cli {

// Runs the command that `words` name (without the program's own name) and returns its exit code. Throws UsageError if
// they do not name a command or do not fit its options, and what the command throws.
int dispatch(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
