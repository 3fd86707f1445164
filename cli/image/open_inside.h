// Opens what an image's path means, with the image's own idea of the root.
//
// Threading: plain functions.
#pragma once

#include <filesystem>
#include <string>

#include "socket.h"

namespace adaptdl::image {

// An O_PATH descriptor of a path in `root`: links, absolute ones too, and ".." stay inside. "" is the root. Throws
// Error that names the path.
net::Fd open_inside(const std::filesystem::path& root, const std::string& path);

}  // namespace adaptdl::image
