// Optimus (Peng et al., EuroSys 2018), with an oracle for what it estimates: replicas go where they save most time.
//
// Each job gets its least replicas (at least one), by arrival; then replica after replica goes to the job whose
// remaining time (JobInfo::remaining_time) falls most by it, until there is no room or nothing to gain. A job whose
// remaining time is not known gets no more than its least. Jobs are placed on the emptiest nodes, the smallest first;
// one that keeps its number of replicas stays where it is. Batch sizes are the user's.
#pragma once

#include <memory>

#include "policy/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_optimus();

}  // namespace adaptdl::sched
