// Tiresias (Gu et al., NSDI 2019) with discretized two-dimensional least attained service: jobs that have received
// little service come first.
//
// A job starts in the first of two queues and moves permanently to the second once it has received 16 GPU-hours of
// service (counted in replica-seconds, including restarts). Each queue is first in, first out. Jobs run in queue order
// as long as there is room, and a job that does not fit is skipped. Each job has the number of replicas that its user
// requested, on the emptiest nodes; a job that keeps running stays where it is. Jobs keep the batch sizes that their
// users chose.
#pragma once

#include <memory>

#include "policy/base/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_tiresias();

}  // namespace adaptdl::sched
