// Replacement of this process's communicator.
#pragma once

#include <memory>

#include "adaptdl/collective.h"

namespace adaptdl::collective {

// Replaces the current communicator, if any. Unless that communicator was torn down, its other replicas receive an
// error. If `communicator` is null, the process is left without one.
void replace_world(std::unique_ptr<Communicator> communicator);

}  // namespace adaptdl::collective
