// The environment that a replica is started with (the contract of runtime/include/adaptdl/env.h, from the other side).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "local/launch_plan.h"

namespace adaptdl::sched {

using Environment = std::map<std::string, std::string>;

// The environment of this process.
Environment caller_environment();

// Whether the launcher alone decides on this variable: what it inherits under such a name, perhaps being a replica
// itself, does not reach its replicas.
bool is_launchers_own(std::string_view name);

// The environment of the local replica `index` (its rank is plan.node_rank * plan.replicas + index): the caller's,
// without what is the launcher's own, then plan.settings, then what the launcher gives. `port` is where rank 0 listens;
// `cores` is what this machine's replicas share.
Environment replica_environment(const LaunchPlan& plan, const Environment& caller, int index, int restarts, int port,
                                unsigned cores);

// As execve takes it: "NAME=VALUE".
std::vector<std::string> to_strings(const Environment& environment);

// The processor cores that this process may use, by its affinity and the quota of its control group; at least 1.
unsigned usable_cores();

}  // namespace adaptdl::sched
