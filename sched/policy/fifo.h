// First in, first out: jobs start in the order in which they arrived, with the replicas that their users asked for, and
// run to their end.
//
// The first that there is no room for holds up all behind it, unless the nodes together could never hold it. Jobs are
// placed on the emptiest nodes. Batch sizes are the user's.
#pragma once

#include <memory>

#include "policy/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_fifo();

}  // namespace adaptdl::sched
