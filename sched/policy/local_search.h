// Improves an allocation, one job at a time, until no move helps or the limit of work is reached.
//
// A move gives a job a more valuable place, which is either free or cleared by evicting other jobs. Each evicted job
// then takes the best place that is left for it. The move is kept if the sum of all values grew.
#pragma once

#include <vector>

#include "policy/search_state.h"
#include "policy/size_choice.h"

namespace adaptdl::sched {

// `ideal` is what each job would have if nodes did not matter. Jobs that already have as much value are not moved.
void improve(const SearchProblem& problem, const std::vector<SizeChoice>& ideal, SearchState& state);

}  // namespace adaptdl::sched
