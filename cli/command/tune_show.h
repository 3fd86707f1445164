// The verbs of `adaptdl tune` that read studies: ls, show, best and importance.
#pragma once

#include <CLI/CLI.hpp>

namespace adaptdl::cli {

// Adds the verbs to the command.
void add_study_verbs(CLI::App& app);

}  // namespace adaptdl::cli
