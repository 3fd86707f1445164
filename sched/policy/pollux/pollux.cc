#include "policy/pollux/pollux.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "policy/base/comparable.h"
#include "policy/pollux/pollux_reason.h"
#include "policy/search/adaptive_objective.h"
#include "policy/search/cluster_size.h"
#include "policy/search/nsga2.h"
#include "policy/search/search_frame.h"
#include "policy/search/search_state.h"

namespace adaptdl::sched {
namespace {

// The last states of the genetic search, from which the next search continues, with the names of their jobs and nodes.
struct LastPopulation : PolicyState {
  std::uint64_t cycle = 0;
  std::vector<std::string> jobs, nodes;
  std::vector<GeneticState> states;
};

// A problem with its jobs in the order in which they are served.
struct Ordered {
  Ordered(const Problem& problem, PolluxObjective objective)
      : frame(make_search_frame(problem, objective == PolluxObjective::kAdaptive ? adaptive_limit : profiled_limit)) {
    std::vector<std::size_t> order(problem.jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t index) {
      const JobInfo& job = problem.jobs[index];
      const double first = objective == PolluxObjective::kPaper ? comparable(job.attained_service) : job.min_replicas;
      return std::tuple(!frame.problem.jobs[index].pinned, first, comparable(job.creation_time));
    });
    std::vector<SearchJob> sorted;
    for (const std::size_t index : order) {
      jobs.push_back(&problem.jobs[index]);
      sorted.push_back(std::move(frame.problem.jobs[index]));
    }
    frame.problem.jobs = std::move(sorted);
  }

  SearchFrame frame;
  std::vector<const JobInfo*> jobs;
};

std::vector<GeneticState> adapt(const LastPopulation& last, const Ordered& ordered) {
  std::unordered_map<std::string_view, std::size_t> job_index, node_index;
  for (std::size_t i = 0; i < ordered.jobs.size(); ++i) job_index.emplace(ordered.jobs[i]->name, i);
  for (std::size_t i = 0; i < ordered.frame.node_names.size(); ++i) node_index.emplace(ordered.frame.node_names[i], i);
  std::vector<GeneticState> states;
  for (const GeneticState& old : last.states) {
    GeneticState& state = states.emplace_back(ordered.jobs.size());
    for (std::size_t i = 0; i < last.jobs.size(); ++i) {
      const auto job = job_index.find(last.jobs[i]);
      if (job == job_index.end()) continue;
      for (const Share& share : old[i])
        if (const auto node = node_index.find(last.nodes[static_cast<std::size_t>(share.node)]);
            node != node_index.end())
          state[job->second].push_back({static_cast<int>(node->second), share.replicas});
    }
  }
  return states;
}

// Returns the problem restricted to the first `nodes` nodes. Jobs that were on other nodes must move.
SearchProblem on_first(const PolluxProblem& problem, std::size_t nodes) {
  SearchProblem smaller = problem.search;
  smaller.nodes.resize(nodes);
  for (SearchJob& job : smaller.jobs) {
    if (job.previous.empty() || static_cast<std::size_t>(job.previous.back().node) < nodes) continue;
    job.previous.clear();
    job.keep = job.one_node[0];
  }
  return smaller;
}

// Returns the number of jobs that are waiting.
int waiting_jobs(const PolluxProblem& problem, const std::vector<Placement>& placements) {
  int count = 0;
  for (std::size_t job = 0; job < placements.size(); ++job)
    count += problem.search.jobs[job].max_replicas > 0 && placements[job].empty();
  return count;
}

// Returns the smallest number of nodes from `min_nodes` to `max_nodes` with which no more jobs wait than with
// `max_nodes`.
int enough_nodes(int min_nodes, int max_nodes, const std::function<int(int)>& waiting) {
  if (waiting(min_nodes) == 0 || waiting(min_nodes) <= waiting(max_nodes)) return min_nodes;
  int low = min_nodes, high = max_nodes;
  while (low + 1 < high) {
    const int middle = low + (high - low) / 2;
    (waiting(middle) > waiting(max_nodes) ? low : high) = middle;
  }
  return high;
}

// Returns the number of nodes with replicas.
int used_nodes(const std::vector<Placement>& placements) {
  std::set<int> nodes;
  for (const Placement& placement : placements) {
    for (const Share& share : placement) nodes.insert(share.node);
  }
  return static_cast<int>(nodes.size());
}

// Returns the utility of the nodes (see cluster_size.h), computed for the resource with the highest utility.
double utility(const PolluxProblem& problem, const std::vector<SearchNode>& nodes,
               const std::vector<Placement>& placements) {
  const std::size_t types = nodes.empty() ? 0 : nodes.front().capacity.size();
  double highest = 0;
  for (std::size_t type = 0; type < types; ++type) {
    double total = 0, used = 0;
    for (const SearchNode& node : nodes) total += static_cast<double>(node.capacity[type]);
    for (std::size_t job = 0; job < placements.size(); ++job) {
      const auto replicas = static_cast<std::size_t>(replica_count(placements[job]));
      const SpeedupRows& rows = problem.speedups[job];
      if (replicas == 0 || replicas >= rows.one_node.size()) continue;
      used += rows(placements[job].size(), replicas) * static_cast<double>(problem.search.jobs[job].demand[type]);
    }
    if (total > 0) highest = std::max(highest, used / total);
  }
  return highest;
}

class Pollux : public Policy {
 public:
  explicit Pollux(const PolluxOptions& options) : options_(options) {}

  Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>& state) const override {
    Ordered ordered(problem, options_.objective);
    const bool sizes = problem.node_template && chooses_size();
    const int now = static_cast<int>(problem.nodes.size());
    SearchProblem search = ordered.frame.problem;
    if (sizes) {
      const int max_nodes = problem.max_nodes > 0 ? problem.max_nodes : std::max(2 * now, 1);
      add_template(*problem.node_template, ordered.frame.resources, std::max(max_nodes - now, 0), search);
    }
    const PolluxRules rules{options_.objective, options_.fairness, options_.restart_cost, problem.now};
    const PolluxProblem values = pollux_problem(ordered.jobs, std::move(search), rules);

    Decision decision;
    decision.desired_nodes = now;
    GeneticState placements;
    if (options_.search == PolluxSearch::kGenetic) {
      placements = evolve(ordered, values, std::dynamic_pointer_cast<const LastPopulation>(state), decision);
    } else if (sizes) {
      placements = search_size(values, problem, decision);
    } else {
      placements = search_allocations(values.search).placements;
    }
    explain(problem, ordered, values, placements, decision);
    return decision;
  }

  bool chooses_size() const override { return options_.search == PolluxSearch::kAdditive; }

 private:
  static void add_template(const NodeInfo& node_template, const std::vector<std::string>& resources, int copies,
                           SearchProblem& search) {
    SearchNode node;
    for (const std::string& type : resources) {
      const auto found = node_template.resources.find(type);
      node.capacity.push_back(found == node_template.resources.end() ? 0 : std::max<std::int64_t>(found->second, 0));
    }
    search.nodes.insert(search.nodes.end(), static_cast<std::size_t>(copies), node);
  }

  GeneticState evolve(const Ordered& ordered, const PolluxProblem& values,
                      const std::shared_ptr<const LastPopulation>& last, Decision& decision) const {
    auto next = std::make_shared<LastPopulation>();
    GeneticOptions genetic = options_.genetic;
    if (last) next->cycle = last->cycle + 1;
    genetic.seed =
        nsga2::Random(genetic.seed ^ nsga2::Random(next->cycle).bits()).bits();  // a different sequence in each cycle
    // The arithmetic mean (exponent 1) grows with the sum of speedups.
    const PowerMean mean(options_.objective == PolluxObjective::kPaper ? options_.fairness : 1);
    GeneticResult result =
        search_genetic(values, mean, last ? adapt(*last, ordered) : std::vector<GeneticState>(), genetic);
    for (const JobInfo* job : ordered.jobs) next->jobs.push_back(job->name);
    next->nodes = ordered.frame.node_names;
    next->states = std::move(result.states);
    decision.state = std::move(next);
    return std::move(result.best);
  }

  // Solves the problem for a few numbers of nodes. The result uses only nodes that exist and will stay.
  GeneticState search_size(const PolluxProblem& values, const Problem& problem, Decision& decision) const {
    const int now = static_cast<int>(problem.nodes.size()), max_nodes = static_cast<int>(values.search.nodes.size());
    int min_nodes = std::clamp(problem.min_nodes, 0, now);
    for (const SearchJob& job : values.search.jobs)
      if (job.pinned) min_nodes = std::max(min_nodes, job.previous.back().node + 1);
    std::map<int, GeneticState> solved;
    const auto solve = [&](int nodes) -> const GeneticState& {
      const auto [entry, added] = solved.try_emplace(nodes);
      if (added) entry->second = search_allocations(on_first(values, static_cast<std::size_t>(nodes))).placements;
      return entry->second;
    };
    const auto utility_of = [&](int nodes) {
      const auto end = values.search.nodes.begin() + nodes;
      return utility(values, {values.search.nodes.begin(), end}, solve(nodes));
    };
    const auto waiting = [&](int nodes) { return waiting_jobs(values, solve(nodes)); };
    decision.utility = utility_of(now);
    const int start = std::clamp(problem.last_desired.value_or(now), min_nodes, max_nodes);
    const int desired = desired_nodes(start, min_nodes, max_nodes, options_.utility, utility_of);
    const int enough = enough_nodes(desired, max_nodes, waiting);
    decision.for_waiting_jobs = enough > desired;
    // Nodes that no job would use are not desired, regardless of the utility of the other nodes.
    const int used = std::max(min_nodes, std::min(enough, used_nodes(solve(enough))));
    decision.desired_nodes = waiting(used) > waiting(enough) ? enough : used;
    return solve(std::min(now, decision.desired_nodes));
  }

  void explain(const Problem& problem, const Ordered& ordered, const PolluxProblem& values,
               const GeneticState& placements, Decision& decision) const {
    const std::vector<SearchNode>& nodes = ordered.frame.problem.nodes;
    for (std::size_t index = 0; index < ordered.jobs.size(); ++index) {
      const JobInfo& job = *ordered.jobs[index];
      const Placement& placement = placements[index];
      const auto previous = problem.previous.find(job.name);
      const int had = previous == problem.previous.end() ? 0 : static_cast<int>(previous->second.size());
      const bool changed = placement != ordered.frame.problem.jobs[index].previous;
      const SearchJob& search = values.search.jobs[index];
      const PolluxOutcome outcome{job,
                                  search,
                                  values.speedups[index],
                                  values.constraints[index],
                                  replica_count(placement),
                                  static_cast<int>(placement.size()),
                                  had,
                                  changed,
                                  options_.objective};
      decision.reasons[job.name] = pollux_reason(outcome, nodes, ordered.frame.resources);
      // Replicas keep their ranks if the placement does not change, even if its nodes are in a different order.
      const bool same = !changed && !placement.empty() && side_by_side(previous->second);
      decision.allocations[job.name] = same ? previous->second : to_allocation(ordered.frame, placement);
    }
  }

  PolluxOptions options_;
};

}  // namespace

std::unique_ptr<Policy> make_pollux(const PolluxOptions& options) { return std::make_unique<Pollux>(options); }

PolluxOptions paper_options(const PolicyOptions& options) {
  PolluxOptions pollux;
  pollux.fairness = options.fairness;
  pollux.restart_cost = options.restart_cost;
  pollux.utility = options.utility;
  pollux.genetic.seed = options.seed;
  return pollux;
}

PolluxOptions released_options(const PolicyOptions& options) {
  PolluxOptions pollux = paper_options(options);
  pollux.objective = PolluxObjective::kReleased;
  pollux.search = PolluxSearch::kAdditive;
  return pollux;
}

PolluxOptions adaptive_options(const PolicyOptions& options) {
  PolluxOptions pollux = released_options(options);
  pollux.objective = PolluxObjective::kAdaptive;
  return pollux;
}

}  // namespace adaptdl::sched
