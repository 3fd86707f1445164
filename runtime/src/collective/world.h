// Replacement of this process's communicator.
#pragma once

#include <memory>

#include "adaptdl/collective.h"

namespace adaptdl::collective {

// Replaces the current communicator, if any; its replicas get an error unless it was torn down. Null leaves none.
void replace_world(std::unique_ptr<Communicator> communicator);

}  // namespace adaptdl::collective
