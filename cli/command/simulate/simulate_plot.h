// Defines the verb `adaptdl simulate plot`.
#pragma once

#include <CLI/CLI.hpp>

namespace adaptdl::cli {

void add_simulate_plot(CLI::App& app);

}  // namespace adaptdl::cli
