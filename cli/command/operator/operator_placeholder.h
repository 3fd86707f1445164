// The verb `operator placeholder`: the program that the cluster expander's placeholder pods run.
#pragma once

#include <CLI/CLI.hpp>

namespace adaptdl::cli {

// Registers the verb `placeholder`.
void add_operator_placeholder(CLI::App& app);

}  // namespace adaptdl::cli
