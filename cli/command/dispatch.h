// Finds the command that a command line names, and runs it.
#pragma once

#include <string>
#include <vector>

namespace adaptdl::cli {

// Runs the command that `words` name (the command line without the program's name) and returns its exit code. Throws
// UsageError if `words` name no command or do not match its options. Exceptions from the command are passed through to
// the caller.
int dispatch(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
