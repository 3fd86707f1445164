// Replacement of this process's communicator.
#pragma once

#include <memory>

#include "adaptdl/collective.h"

namespace adaptdl::collective {

// Replaces the current communicator, if any. Unless it was torn down, the other replicas in it receive an error. If
// `communicator` is null, the process is left without one.
void replace_world(std::unique_ptr<Communicator> communicator);

}  // namespace adaptdl::collective
