// How replicas find each other by a file that all of them see: rank 0 writes its address and a secret to it.
//
// The file has mode 0600 and is removed when all replicas are connected. One that an earlier job has left is replaced:
// the others read the file again when it changes.
#pragma once

#include <filesystem>
#include <string>

#include "adaptdl/collective.h"

namespace adaptdl::internal {

// Initializes the collective calls with these options, in which it sets the address of rank 0, the port, and the
// secret if there is none. `host`: the address of this replica for the others, if its rank is 0. Throws Error if the file
// cannot be written, CollectiveError if it does not come in time, and what collective::initialize throws.
void initialize_by_file(const std::filesystem::path& path, const std::string& host, collective::Options& options);

}  // namespace adaptdl::internal
