// Defines the verb `adaptdl tune importance`, which shows which of a study's parameters matter.
#pragma once

#include <CLI/CLI.hpp>

namespace adaptdl::cli {

// Adds the verb to the command.
void add_study_importance(CLI::App& app);

}  // namespace adaptdl::cli
