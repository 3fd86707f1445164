// The options of all policies.
#pragma once

#include <cstdint>

#include "policy/search/cluster_size.h"

namespace adaptdl::sched {

struct PolicyOptions {
  std::uint64_t seed = 0;
  double restart_cost = 30;  // seconds without progress that a change of allocation costs a job
  double fairness = -1;  // exponent of the power mean over jobs, for policies that have one: more negative is fairer
  UtilityRange utility;  // for policies that choose the size of the cluster
};

}  // namespace adaptdl::sched
