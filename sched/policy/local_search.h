// Makes an allocation better, one job at a time, until nothing helps or the work allowed is done.
//
// A move gives a job what it would rather have: a place that is free, or one from which others are evicted, who then
// take the best place that is left for each. It stands if the sum of all values grew.
#pragma once

#include <vector>

#include "policy/search_state.h"
#include "policy/size_choice.h"

namespace adaptdl::sched {

// `ideal` is what each job would have if nodes did not matter: jobs that have as much are left alone.
void improve(const SearchProblem& problem, const std::vector<SizeChoice>& ideal, SearchState& state);

}  // namespace adaptdl::sched
