// Chooses the replica for a copy.
#pragma once

#include <optional>
#include <span>

#include "kube/jobs/job.h"

namespace adaptdl::kube {

// Returns the newest group's running replica with the lowest rank, or with `rank` if given; null if there is none.
const Replica* choose_replica(std::span<const Replica> replicas, std::optional<int> rank);

}  // namespace adaptdl::kube
