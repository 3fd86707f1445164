// Which replica this process is, for code that may run before init_process_group as well as after it.
#pragma once

#include "adaptdl/collective.h"
#include "adaptdl/env.h"

namespace adaptdl::internal {

// The collective knows better than the environment: init_process_group may have been given explicit ranks.
inline int replica_rank() { return collective::initialized() ? collective::world().rank() : env::replica_rank(); }
inline int num_replicas() { return collective::initialized() ? collective::world().size() : env::num_replicas(); }

}  // namespace adaptdl::internal
