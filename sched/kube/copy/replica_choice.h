// Which replica of a job a copy goes through. A pure function.
#pragma once

#include <optional>
#include <span>

#include "kube/job.h"

namespace adaptdl::kube {

// The replica to copy from: of the newest group, the lowest rank that runs. Null: there is none.
const Replica* choose_replica(std::span<const Replica> replicas, std::optional<int> rank);

}  // namespace adaptdl::kube
