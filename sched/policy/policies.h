// Creates policies by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "policy/base/policy.h"
#include "policy/search/policy_options.h"

namespace adaptdl::sched {

// The names are those of kPolicies in policies.cc. Local runs always use "adaptive". Throws UsageError for any other
// name, with a message that lists the valid ones, and Error for "sia" if CBC is not installed.
std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options);

// Returns all names, the default first.
std::vector<std::string_view> policy_names();

}  // namespace adaptdl::sched
