// Improves an allocation, one job at a time, until no move helps or the work limit is reached.
//
// A move gives a job a more valuable placement, which is either free or cleared by evicting other jobs. Each evicted
// job then takes the best placement that is left. The move is kept if it increases the sum of all values.
#pragma once

#include <vector>

#include "policy/search/search_state.h"
#include "policy/search/size_choice.h"

namespace adaptdl::sched {

// `ideal` is the size that each job would have if nodes did not matter. Jobs that already have the value of their ideal
// size are not moved.
void improve(const SearchProblem& problem, const std::vector<SizeChoice>& ideal, SearchState& state);

}  // namespace adaptdl::sched
