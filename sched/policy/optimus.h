// Optimus (Peng et al., EuroSys 2018) with an oracle instead of estimates: replicas go where they save the most time.
//
// Each job gets its minimum number of replicas (at least one), by arrival. Further replicas then go, one by one, to the
// job whose remaining time (JobInfo::remaining_time) falls most, until there is no room or no gain. A job whose
// remaining time is not known gets only its minimum. Jobs are placed on the emptiest nodes, the smallest jobs first; a
// job that keeps its number of replicas stays where it is. Batch sizes are the user's.
#pragma once

#include <memory>

#include "policy/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_optimus();

}  // namespace adaptdl::sched
