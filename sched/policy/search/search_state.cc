#include "policy/search/search_state.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace adaptdl::sched {

int replica_count(const Placement& placement) {
  return std::accumulate(placement.begin(), placement.end(), 0,
                         [](int sum, const Share& share) { return sum + share.replicas; });
}

double placement_value(const SearchJob& job, const Placement& placement) {
  if (placement == job.previous) return job.keep;
  const auto replicas = static_cast<std::size_t>(replica_count(placement));
  const std::vector<double>& values = placement.size() > 1 ? job.many_nodes : job.one_node;
  return replicas < values.size() ? values[replicas] : 0;
}

double allocation_value(const SearchProblem& problem, const std::vector<Placement>& placements) {
  double value = 0;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) value += placement_value(problem.jobs[j], placements[j]);
  return value;
}

SearchState::SearchState(const SearchProblem& problem)
    : problem_(problem),
      placements_(problem.jobs.size()),
      values_(problem.jobs.size()),
      jobs_on_(problem.nodes.size()),
      distributed_on_(problem.nodes.size()) {
  for (const SearchNode& node : problem.nodes) free_.push_back(node.capacity);
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    const SearchJob& job = problem.jobs[j];
    values_[j] = placement_value(job, {});
    value_ += values_[j];
    if (job.pinned) place(static_cast<int>(j), job.previous);
  }
}

int SearchState::room(int job, int node) const {
  const std::vector<std::int64_t>& demand = problem_.jobs[index(job)].demand;
  const std::vector<std::int64_t>& free = free_[index(node)];
  std::int64_t room = std::numeric_limits<int>::max();
  bool asks = false;
  for (std::size_t r = 0; r < demand.size(); ++r) {
    if (demand[r] <= 0) continue;
    asks = true;
    // Avoids the division for the common demand of one GPU, because divisions are slow.
    room = std::min(room, demand[r] == 1 ? free[r] : free[r] / demand[r]);
  }
  return asks ? static_cast<int>(std::max<std::int64_t>(room, 0)) : 0;
}

bool SearchState::fits(int job, const Placement& placement) const {
  return std::ranges::all_of(placement, [&](const Share& share) {
    return (placement.size() == 1 || open_to_distributed(share.node)) && share.replicas <= room(job, share.node);
  });
}

void SearchState::set(int job, Placement placement, int sign) {
  const SearchJob& about = problem_.jobs[index(job)];
  const bool distributed = placement.size() > 1 && !about.pinned;
  for (const Share& share : placement) {
    std::vector<std::int64_t>& free = free_[index(share.node)];
    for (std::size_t r = 0; r < about.demand.size(); ++r) {
      if (about.demand[r] > 0) free[r] -= sign * about.demand[r] * share.replicas;
    }
    if (distributed) distributed_on_[index(share.node)] += sign;
    std::vector<int>& there = jobs_on_[index(share.node)];
    if (sign > 0) {
      there.push_back(job);
    } else {
      there.erase(std::ranges::find(there, job));
    }
  }
}

void SearchState::place(int job, Placement placement) {
  set(job, placement, 1);
  value_ -= values_[index(job)];
  values_[index(job)] = placement_value(problem_.jobs[index(job)], placement);
  value_ += values_[index(job)];
  placements_[index(job)] = std::move(placement);
}

void SearchState::remove(int job) {
  set(job, placements_[index(job)], -1);
  placements_[index(job)].clear();
  value_ -= values_[index(job)];
  values_[index(job)] = placement_value(problem_.jobs[index(job)], {});
  value_ += values_[index(job)];
}

bool SearchState::was_on(int job, int node) const {
  return std::ranges::any_of(problem_.jobs[index(job)].previous,
                             [node](const Share& share) { return share.node == node; });
}

std::optional<Placement> SearchState::find_one_node(int job, int replicas) const {
  int best = -1, min_room = std::numeric_limits<int>::max();
  bool best_known = false;
  for (int node = 0; node < static_cast<int>(free_.size()); ++node) {
    const int there = room(job, node);
    if (there < replicas || there > min_room) continue;
    const bool known = was_on(job, node);
    if (there == min_room && (best_known || !known)) continue;
    best = node, min_room = there, best_known = known;
  }
  if (best < 0) return {};
  return Placement{{best, replicas}};
}

std::optional<Placement> SearchState::find_many_nodes(int job, int replicas) const {
  struct Candidate {
    int room;
    bool known;
    int node;
  };
  std::vector<Candidate> candidates;
  int total = 0;
  for (int node = 0; node < static_cast<int>(free_.size()); ++node) {
    const int there = open_to_distributed(node) ? std::min(room(job, node), replicas) : 0;
    if (there == 0) continue;
    total = std::min(total + there, replicas);
    candidates.push_back({there, was_on(job, node), node});
  }
  if (total < replicas) return {};
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.room != b.room ? a.room > b.room : a.known && !b.known;
  });
  Placement placement;
  auto next = candidates.begin();
  for (; next->room < replicas; ++next) {
    placement.push_back({next->node, next->room});
    replicas -= next->room;
  }
  // The remaining replicas go to the node with the least room that can still hold them.
  const auto last = std::min_element(next, candidates.end(), [&](const Candidate& a, const Candidate& b) {
    if ((a.room < replicas) != (b.room < replicas)) return b.room < replicas;
    return a.room != b.room ? a.room < b.room : a.known && !b.known;
  });
  placement.push_back({last->node, replicas});
  std::ranges::sort(placement, {}, &Share::node);
  return placement;
}

Placement SearchState::best_placement(int job) const {
  const SearchJob& about = problem_.jobs[index(job)];
  int on_one = 0, on_many = 0, places = 0;
  for (int node = 0; node < static_cast<int>(free_.size()); ++node) {
    const int there = std::min(room(job, node), about.max_replicas);
    on_one = std::max(on_one, there);
    if (there > 0 && open_to_distributed(node)) {
      on_many = std::min(on_many + there, about.max_replicas);
      ++places;
    }
  }
  if (places < 2) on_many = 0;
  const auto best_size = [&](const std::vector<double>& values, int max_size) {
    int best = 0;
    max_size = std::min(max_size, static_cast<int>(values.size()) - 1);
    for (int r = std::max(about.min_replicas, 1); r <= max_size; ++r) {
      if (best == 0 || values[index(r)] > values[index(best)]) best = r;
    }
    return best;
  };
  Placement best;
  double value = placement_value(about, {});
  const auto consider = [&](std::optional<Placement> placement) {
    if (!placement) return;
    const double theirs = placement_value(about, *placement);
    if (theirs <= value) return;
    best = std::move(*placement);
    value = theirs;
  };
  if (!about.previous.empty() && fits(job, about.previous)) consider(about.previous);
  if (const int r = best_size(about.one_node, on_one); r > 0 && about.one_node[index(r)] > value)
    consider(find_one_node(job, r));
  if (const int r = best_size(about.many_nodes, on_many); r > 0 && about.many_nodes[index(r)] > value)
    consider(find_many_nodes(job, r));
  return best;
}

}  // namespace adaptdl::sched
