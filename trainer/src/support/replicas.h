// The rank of this process and the number of replicas, for code that may run before or after init_process_group.
#pragma once

#include "adaptdl/collective.h"
#include "adaptdl/env.h"

namespace adaptdl::internal {

// The collective takes precedence over the environment: init_process_group may have been given explicit ranks.
inline int replica_rank() { return collective::initialized() ? collective::world().rank() : env::replica_rank(); }
inline int num_replicas() { return collective::initialized() ? collective::world().size() : env::num_replicas(); }

}  // namespace adaptdl::internal
