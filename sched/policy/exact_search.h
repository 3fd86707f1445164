// Finds the best allocation of a tiny problem by branch and bound.
#pragma once

#include <optional>

#include "policy/allocation_search.h"

namespace adaptdl::sched {

// Returns placements worth more than `value`, if it finds any. They are within 0.1 % of the best, unless the search
// reached its limit of steps. Returns nothing, too, if the problem is too large to search.
std::optional<SearchResult> search_exactly(const SearchProblem& problem, double value);

}  // namespace adaptdl::sched
