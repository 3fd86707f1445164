// Locates the directories of runs, so that runs can be found again and an interruption never loses work.
#pragma once

#include <filesystem>
#include <string>

namespace adaptdl::sched {

// Returns $XDG_STATE_HOME/adaptdl/runs if that variable is an absolute path, otherwise ~/.local/state/adaptdl/runs.
// Throws UsageError if there is no home directory either.
std::filesystem::path runs_directory();

// Returns the directory for the studies of `adaptdl tune`, whose trials are runs in `runs`.
std::filesystem::path studies_directory(const std::filesystem::path& runs = runs_directory());

// Creates the directory of all runs, or makes an existing one inaccessible to other users.
void prepare_runs_directory(const std::filesystem::path& runs);

// Creates the directory `parent`/NAME-<date>-<time>, accessible only to the user, and returns its path. A number is
// appended if the name is in use. Throws Error if the directory cannot be created.
std::filesystem::path make_run_directory(const std::filesystem::path& parent, const std::string& name);

}  // namespace adaptdl::sched
