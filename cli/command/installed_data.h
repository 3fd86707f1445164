// What came with adaptdl: the files of share/adaptdl.
//
// Threading: a plain function.
#pragma once

#include <filesystem>

namespace adaptdl::cli {

// The directory `name` of share/adaptdl beside this program, where it is installed or in the source tree around it;
// else where it was to be installed. Empty if it is in neither.
std::filesystem::path installed_data(const std::filesystem::path& name);

}  // namespace adaptdl::cli
