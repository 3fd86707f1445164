// Copies files with all that they are: owners, modes, times, links and attributes.
//
// Threading: plain functions.
#pragma once

#include <filesystem>

namespace adaptdl::image {

// Copies what is in a directory into another that is there. Devices and sockets are left out. Throws Error.
void copy_tree(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace adaptdl::image
