// Locates the files that are installed with adaptdl, in share/adaptdl.
#pragma once

#include <filesystem>

namespace adaptdl::cli {

// Returns the directory `name` of the share/adaptdl nearest to this program, be it installed or in a source tree, else
// of the data directory that was set at build time. Empty if neither exists.
std::filesystem::path installed_data(const std::filesystem::path& name);

}  // namespace adaptdl::cli
