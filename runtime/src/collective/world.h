// Changing the communicator of this process.
#pragma once

#include <memory>

#include "adaptdl/collective.h"

namespace adaptdl::collective {

// In place of the present one, if there is one, whose replicas get an error unless it was torn down. Null: none.
void replace_world(std::unique_ptr<Communicator> communicator);

}  // namespace adaptdl::collective
