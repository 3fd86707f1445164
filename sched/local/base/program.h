// Finds the program to run.
#pragma once

#include <filesystem>
#include <string>

namespace adaptdl::sched {

// Returns the executable file for `name`: `name` itself if it contains a slash, otherwise the first match in
// `search_path`, a list of directories in the format of $PATH. If there is no such file, throws UsageError with a
// suggestion.
std::filesystem::path find_program(const std::string& name, const std::string& search_path);

}  // namespace adaptdl::sched
