// Finds the best allocation of a tiny problem by branch and bound.
#pragma once

#include <optional>

#include "policy/search/allocation_search.h"

namespace adaptdl::sched {

// Returns placements that are worth more than `value`, or nullopt if the search finds none or the problem is too large.
// The placements are within 0.1% of the optimum unless the search reached its step limit.
std::optional<SearchResult> search_exactly(const SearchProblem& problem, double value);

}  // namespace adaptdl::sched
