// Access to the process group for the other sources of the trainer.
#pragma once

#include "torch_compat.h"

namespace adaptdl::internal {

// Throws Error, which says to call init_process_group, if there is none. Null in a newcomer that has not joined yet.
const compat::ProcessGroupPtr& process_group_ptr();

}  // namespace adaptdl::internal
