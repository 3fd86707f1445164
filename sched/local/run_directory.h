// Where runs are kept, so that they can be found again and an interrupt never loses work.
#pragma once

#include <filesystem>
#include <string>

namespace adaptdl::sched {

// $XDG_STATE_HOME/adaptdl/runs, where the variable is an absolute path, else ~/.local/state/adaptdl/runs. Throws
// UsageError if there is no home directory either.
std::filesystem::path runs_directory();

// The directory of the studies of `adaptdl tune`, whose trials are runs in `runs`.
std::filesystem::path studies_directory(const std::filesystem::path& runs = runs_directory());

// Creates the directory that runs are kept in, or closes one that exists to other users.
void prepare_runs_directory(const std::filesystem::path& runs);

// Makes a new directory, for its user alone, `parent`/NAME-<date>-<time> and returns it; a number is appended if that
// is taken. Throws Error if it cannot be made.
std::filesystem::path make_run_directory(const std::filesystem::path& parent, const std::string& name);

}  // namespace adaptdl::sched
