// The process group as the rest of the trainer sees it.
#pragma once

#include "torch_compat.h"

namespace adaptdl::internal {

// Throws Error, which says to call init_process_group, if there is none.
const compat::ProcessGroupPtr& process_group_ptr();

}  // namespace adaptdl::internal
