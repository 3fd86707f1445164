// Lets replicas find each other by a file that all of them can access: rank 0 writes its address and a secret to it.
//
// The file has mode 0600 and is removed when all replicas are connected. A file that an earlier job left is replaced;
// the other replicas read the file again when it changes.
#pragma once

#include <filesystem>
#include <string>

#include "adaptdl/collective.h"

namespace adaptdl::internal {

// Initializes the collective calls with `options`, in which it sets the address and port of rank 0, and a missing
// secret. `host`: the address of this replica for the others, if its rank is 0. Throws Error if the file cannot be
// written or has other contents, CollectiveError if it does not appear in time, and what collective::initialize throws.
void initialize_by_file(const std::filesystem::path& path, const std::string& host, collective::Options& options);

}  // namespace adaptdl::internal
