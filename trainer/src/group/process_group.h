// Access to the process group for the trainer's other sources.
#pragma once

#include "support/torch_compat.h"

namespace adaptdl::internal {

// Returns the process group, or null in a newcomer that has not joined yet. If there is no group, throws an Error that
// says to call init_process_group.
const compat::ProcessGroupPtr& process_group_ptr();

}  // namespace adaptdl::internal
