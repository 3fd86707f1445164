// The policies there are, by name.
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

// "adaptive" (the default everywhere), "pollux" (the paper's), "pollux-released" (the released scheduler's),
// "tiresias", "optimus", "fifo", "sia". Throws UsageError, which names those there are, for another name.
std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options);

// All names, the default first.
std::vector<std::string_view> policy_names();

}  // namespace adaptdl::sched
