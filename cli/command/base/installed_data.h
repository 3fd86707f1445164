// Locates the files that are installed with adaptdl, in share/adaptdl.
#pragma once

#include <filesystem>

namespace adaptdl::cli {

// Returns the directory `name` in the share/adaptdl directory nearest to this program, which may be installed or in a
// source tree. If no such directory exists, returns the directory `name` in the data directory that was set at build
// time, or an empty path if that does not exist either.
std::filesystem::path installed_data(const std::filesystem::path& name);

}  // namespace adaptdl::cli
