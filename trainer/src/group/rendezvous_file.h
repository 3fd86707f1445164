// Lets replicas find each other through a file that all of them can access. Rank 0 writes its address and a secret to
// the file.
//
// The file has mode 0600 and is removed when all replicas are connected. A file that an earlier job left is replaced;
// the other replicas read the file again when it changes.
#pragma once

#include <filesystem>
#include <string>

#include "adaptdl/collective.h"

namespace adaptdl::internal {

// Sets the address and port of rank 0 in `options`, and the secret if it is missing, and initializes the collective
// with `options`. `host`: if this is rank 0, the address at which the other replicas reach it. Throws Error if the file
// cannot be written or contains anything but such an address, CollectiveError if the file does not appear in time, and
// the errors of collective::initialize.
void initialize_by_file(const std::filesystem::path& path, const std::string& host, collective::Options& options);

}  // namespace adaptdl::internal
