// Optimus (Peng et al., EuroSys 2018) with an oracle instead of estimates: replicas go where they save the most time.
//
// In order of arrival, each job gets its minimum number of replicas (at least one). Each further replica then goes to
// the job whose remaining time (JobInfo::remaining_time) it shortens the most, until there is no room or no gain. A job
// whose remaining time is unknown gets only its minimum. Jobs are placed on the emptiest nodes, the smallest jobs
// first; a job that keeps its number of replicas stays where it is. Jobs keep the batch sizes that their users chose.
#pragma once

#include <memory>

#include "policy/base/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_optimus();

}  // namespace adaptdl::sched
