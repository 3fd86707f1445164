// Defines the verb `adaptdl checkpoint save`.
#pragma once

#include <CLI/CLI.hpp>

namespace adaptdl::cli {

void add_checkpoint_save(CLI::App& app);

}  // namespace adaptdl::cli
