// The best allocation of a tiny problem, by branch and bound.
#pragma once

#include <optional>

#include "policy/allocation_search.h"

namespace adaptdl::sched {

// Placements worth more than `value`, if there are any: within 0.1 % of the best. None as well if the problem is too
// large to be searched through.
std::optional<SearchResult> search_exactly(const SearchProblem& problem, double value);

}  // namespace adaptdl::sched
