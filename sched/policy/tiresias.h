// Tiresias (Gu et al., NSDI 2019) with discretised two-dimensional least attained service: jobs that have had little
// service come first.
//
// A job starts in the first of two queues and moves to the second for good when it has had 16 GPU-hours of service (in
// replica-seconds, including restarts). Each queue is first in, first out. Jobs run in the order of the queues as long
// as there is room, and a job that does not fit is passed over. Each job has the replicas that its user requested, on
// the emptiest nodes; a job that keeps running stays where it is. Batch sizes are the user's.
#pragma once

#include <memory>

#include "policy/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_tiresias();

}  // namespace adaptdl::sched
