// Creates policies by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "policy/cluster_size.h"
#include "policy/policy.h"

namespace adaptdl::sched {

struct PolicyOptions {
  std::uint64_t seed = 0;
  double restart_cost = 30;  // seconds without progress that a change of allocation costs a job
  double fairness = -1;  // exponent of the power mean over jobs, for policies that have one: more negative is fairer
  UtilityRange utility;  // for policies that choose the size of the cluster
};

// The names are "adaptive" (the default everywhere), "pollux" (as in the paper), "pollux-released" (as in the released
// scheduler), "tiresias", "optimus", "fifo" and "sia". Throws UsageError for any other name, with a message that lists
// the valid ones, and Error for "sia" if CBC is not installed.
std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options);

// Returns all names, the default first.
std::vector<std::string_view> policy_names();

}  // namespace adaptdl::sched
