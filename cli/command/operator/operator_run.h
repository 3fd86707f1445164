// The verb `operator run`: runs the scheduler and the supervisor of a cluster's AdaptDLJobs.
#pragma once

#include <CLI/CLI.hpp>

namespace adaptdl::cli {

// Registers the verb `run`.
void add_operator_run(CLI::App& app);

}  // namespace adaptdl::cli
