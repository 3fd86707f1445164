#include "policy/search/size_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/search/search_frame.h"
#include "policy/search/search_state.h"

namespace adaptdl::sched {
namespace {

// If all jobs have the same demand, the units of capacity are replicas. Otherwise, the whole capacity is divided into
// this many units.
constexpr int kParts = 4096;

struct Option {
  int units;
  SizeChoice choice;
};

struct Capacity {
  int units = 0;
  std::vector<int> taken;  // units that one replica of each job takes; above `units` if it does not fit
};

// Returns how many replicas with the demand of `job` fit on the nodes, counted node by node.
int slots(const SearchProblem& problem, int job) {
  const SearchState state(problem);
  std::int64_t total = 0;
  for (int node = 0; node < static_cast<int>(problem.nodes.size()); ++node) total += state.room(job, node);
  return static_cast<int>(std::min<std::int64_t>(total, std::numeric_limits<int>::max()));
}

Capacity measure(const SearchProblem& problem) {
  Capacity capacity;
  capacity.taken.assign(problem.jobs.size(), 1);
  int first = -1;
  bool alike = true;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    if (problem.jobs[j].pinned) continue;
    if (first < 0) first = static_cast<int>(j);
    alike = alike && problem.jobs[j].demand == problem.jobs[static_cast<std::size_t>(first)].demand;
  }
  if (first < 0) return capacity;
  if (alike) {
    capacity.units = slots(problem, first);
    return capacity;
  }
  const std::vector<double> shares = dominant_shares(problem);
  double pinned = 0;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    const double share = std::min(shares[j], 2.0);
    capacity.taken[j] = std::max(1, static_cast<int>(std::lround(share * kParts)));
    if (problem.jobs[j].pinned) pinned += share * replica_count(problem.jobs[j].previous);
  }
  capacity.units = static_cast<int>(kParts * std::max(1.0 - pinned, 0.0));
  return capacity;
}

// Returns how many replicas of a job fit on the roomiest empty node, and on all empty nodes together.
std::pair<int, int> fitting_replicas(const SearchState& empty, const SearchProblem& problem, int job) {
  int on_one = 0, on_all = 0;
  const int max_replicas = problem.jobs[static_cast<std::size_t>(job)].max_replicas;
  for (int node = 0; node < static_cast<int>(problem.nodes.size()); ++node) {
    const int there = std::min(empty.room(job, node), max_replicas);
    on_one = std::max(on_one, there);
    on_all = std::min(on_all + there, max_replicas);
  }
  return {on_one, on_all};
}

// Returns the choices worth considering, by units: a choice with more units must also have more value.
std::vector<Option> options_of(const SearchJob& job, std::pair<int, int> max_replicas, int unit, int units) {
  std::vector<Option> all = {{0, {0, job.previous.empty(), placement_value(job, {})}}};
  const auto add = [&](int replicas, bool keep, double value) {
    if (static_cast<std::int64_t>(replicas) * unit <= units) all.push_back({replicas * unit, {replicas, keep, value}});
  };
  for (int r = std::max(job.min_replicas, 1); r <= max_replicas.second; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r <= max_replicas.first && i < job.one_node.size()) add(r, false, job.one_node[i]);
    if (r > 1 && max_replicas.second > max_replicas.first && i < job.many_nodes.size())
      add(r, false, job.many_nodes[i]);
  }
  if (!job.previous.empty()) add(replica_count(job.previous), true, job.keep);
  std::ranges::stable_sort(all, [](const Option& a, const Option& b) {
    return a.units != b.units ? a.units < b.units : a.choice.value > b.choice.value;
  });
  std::vector<Option> options;
  for (const Option& option : all) {
    if (options.empty() || option.choice.value > options.back().choice.value) options.push_back(option);
  }
  return options;
}

SizeChoice stay(const SearchJob& pinned) { return {replica_count(pinned.previous), true, pinned.keep}; }

// Returns each job's best choice, for problems with enough capacity for all of them.
std::vector<SizeChoice> best_of_each(const SearchProblem& problem, const std::vector<std::vector<Option>>& options) {
  std::vector<SizeChoice> choices;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j)
    choices.push_back(problem.jobs[j].pinned ? stay(problem.jobs[j]) : options[j].back().choice);
  return choices;
}

}  // namespace

std::vector<SizeChoice> choose_sizes(const SearchProblem& problem) {
  const std::size_t jobs = problem.jobs.size();
  const Capacity capacity = measure(problem);
  const SearchState empty(problem);
  const auto units = static_cast<std::size_t>(capacity.units);
  std::vector<std::vector<Option>> options(jobs);
  std::size_t wanted = 0;
  for (std::size_t j = 0; j < jobs; ++j) {
    if (problem.jobs[j].pinned) continue;
    options[j] = options_of(problem.jobs[j], fitting_replicas(empty, problem, static_cast<int>(j)), capacity.taken[j],
                            capacity.units);
    wanted += static_cast<std::size_t>(options[j].back().units);
  }
  if (wanted <= units) return best_of_each(problem, options);
  // best[u] is the highest total value of the jobs so far with at most u units; chosen[j][u] is job j's option in that
  // case.
  std::vector<double> best(units + 1, 0.0), next(units + 1);
  std::vector<std::vector<std::uint16_t>> chosen(jobs);
  for (std::size_t j = 0; j < jobs; ++j) {
    if (problem.jobs[j].pinned) continue;
    chosen[j].assign(units + 1, 0);
    // In large clusters, this loop takes much of a cycle's time, so it avoids the checks of a hardened build.
    const double* const without = best.data();
    double* const highest = next.data();
    std::uint16_t* const choice = chosen[j].data();
    for (std::size_t u = 0; u <= units; ++u) highest[u] = without[u] + options[j][0].choice.value;
    for (std::size_t o = 1; o < options[j].size(); ++o) {
      const auto taken = static_cast<std::size_t>(options[j][o].units);
      const double value = options[j][o].choice.value;
      for (std::size_t u = taken; u <= units; ++u) {
        if (const double with = without[u - taken] + value; with > highest[u]) {
          highest[u] = with;
          choice[u] = static_cast<std::uint16_t>(o);
        }
      }
    }
    std::swap(best, next);
  }
  std::vector<SizeChoice> choices(jobs);
  std::size_t left = units;
  for (std::size_t j = jobs; j-- > 0;) {
    const SearchJob& job = problem.jobs[j];
    if (job.pinned) {
      choices[j] = stay(job);
      continue;
    }
    const Option& option = options[j][chosen[j][left]];
    choices[j] = option.choice;
    left -= static_cast<std::size_t>(option.units);
  }
  return choices;
}

}  // namespace adaptdl::sched
