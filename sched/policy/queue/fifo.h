// First in, first out: jobs start in the order of arrival, with the number of replicas that their users requested, and
// run until they complete.
//
// The first job that does not fit holds up all jobs behind it, unless it would not fit even on empty nodes. Jobs are
// placed on the emptiest nodes and keep the batch sizes that their users chose.
#pragma once

#include <memory>

#include "policy/base/policy.h"

namespace adaptdl::sched {

std::unique_ptr<Policy> make_fifo();

}  // namespace adaptdl::sched
