// Copies files with their owners, modes, times, links and extended attributes.
#pragma once

#include "base/fd.h"

namespace adaptdl::image {

// Copies the contents of one open directory into another. Devices, pipes and sockets are skipped, and hard links become
// separate files. Throws Error.
void copy_tree(const Fd& from, Fd to);

}  // namespace adaptdl::image
