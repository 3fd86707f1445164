// Chooses the replica for a copy.
#pragma once

#include <optional>
#include <span>

#include "kube/jobs/job.h"

namespace adaptdl::kube {

// Returns the newest group's running replica that has the given rank or, if `rank` is null, the lowest rank. Returns
// null if there is none.
const Replica* choose_replica(std::span<const Replica> replicas, std::optional<int> rank);

}  // namespace adaptdl::kube
