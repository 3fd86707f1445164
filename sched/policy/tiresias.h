// Tiresias (Gu et al., NSDI 2019), with discretised two-dimensional least attained service: who has had little goes
// first.
//
// A job starts in the first of two queues and goes to the second for good when it has had 16 hours of one GPU (in
// replica-seconds, restarts included). Within a queue, first in first out. As many jobs as there is room for run, by
// queue; a job that there is no room for is passed over. Replicas are those that the user asked for, placed on the
// emptiest nodes; who goes on running stays where it is. Batch sizes are the user's.
#pragma once

#include <memory>

#include "policy/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_tiresias();

}  // namespace adaptdl::sched
