// Finding the program to run.
#pragma once

#include <filesystem>
#include <string>

namespace adaptdl::sched {

// The executable file that `name` stands for: a path if there is a slash in it, else the first match in `search_path`,
// a list of directories as in $PATH. Throws UsageError, with what to try instead, if there is none that can be
// executed.
std::filesystem::path find_program(const std::string& name, const std::string& search_path);

}  // namespace adaptdl::sched
