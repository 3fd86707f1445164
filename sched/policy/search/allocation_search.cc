#include "policy/search/allocation_search.h"

#include <algorithm>
#include <numeric>

#include "policy/search/exact_search.h"
#include "policy/search/local_search.h"
#include "policy/search/search_state.h"
#include "policy/search/size_choice.h"

namespace adaptdl::sched {
namespace {

// Places each job with its chosen size: first the jobs that stay where they are, then the largest ones, which are the
// hardest to place.
void place_sizes(const SearchProblem& problem, const std::vector<SizeChoice>& sizes, SearchState& state) {
  std::vector<int> order;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    const SearchJob& job = problem.jobs[j];
    const int index = static_cast<int>(j);
    if (job.pinned) continue;
    if (sizes[j].keep && !job.previous.empty() && state.fits(index, job.previous)) {
      state.place(index, job.previous);
    } else if (sizes[j].replicas > 0) {
      order.push_back(index);
    }
  }
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int job) { return sizes[static_cast<std::size_t>(job)].replicas; });
  for (const int job : order) {
    const int replicas = sizes[static_cast<std::size_t>(job)].replicas;
    auto placement = state.find_one_node(job, replicas);
    if (!placement) placement = state.find_many_nodes(job, replicas);
    state.place(job, placement ? std::move(*placement) : state.best_placement(job));
  }
}

}  // namespace

SearchResult search_allocations(const SearchProblem& problem) {
  const std::vector<SizeChoice> sizes = choose_sizes(problem);
  SearchState state(problem);
  place_sizes(problem, sizes, state);
  improve(problem, sizes, state);
  if (auto better = search_exactly(problem, state.value())) return std::move(*better);
  return {state.placements(), allocation_value(problem, state.placements())};
}

}  // namespace adaptdl::sched
