#include "policy/search/pollux_objective.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "policy/search/adaptive_objective.h"
#include "policy/search/search_frame.h"
#include "policy/search/search_state.h"

namespace adaptdl::sched {
namespace {

constexpr double kNothing = 1e-3;         // added to each scaled speedup in a power mean
constexpr double kReleasedRestart = 0.9;  // multiplies a speedup if the allocation changes
constexpr double kMaxSpeedup = 1e12;      // larger speedups come from nonsensical hints

std::int64_t possible_replicas(const SearchJob& job, const std::vector<SearchNode>& nodes) {
  std::int64_t possible = 0;
  for (const SearchNode& node : nodes)
    if (possible < kMaxReplicasPerJob)
      possible += std::min<std::int64_t>(room(job.demand, node.capacity), kMaxReplicasPerJob);
  return std::min<std::int64_t>(possible, std::min(kMaxReplicasPerJob, job.max_replicas));
}

Constraint constraint(const JobInfo& info, const SearchJob& job, std::int64_t max_replicas) {
  if (job.pinned) return Constraint::kNone;
  if (std::ranges::all_of(job.demand, [](std::int64_t amount) { return amount <= 0; }))
    return Constraint::kAsksForNothing;
  if (info.max_replicas < 1 || info.min_replicas > info.max_replicas) return Constraint::kContradiction;
  if (max_replicas < 1) return Constraint::kNoNode;
  if (max_replicas < info.min_replicas) return Constraint::kTooMany;
  return Constraint::kNone;
}

// Returns the goodput of `replicas` replicas on one node. If the job cannot run with that many, the number is halved
// until it can.
double base_goodput(const SpeedupFunction& speedup, std::int64_t replicas) {
  for (; replicas > 1; replicas /= 2)
    if (const double goodput = speedup.goodput(1, static_cast<int>(replicas)); goodput > 0) return goodput;
  return speedup.goodput(1, 1);
}

SpeedupRows speedups(const SpeedupFunction* speedup, std::size_t max_replicas, std::int64_t base_replicas) {
  SpeedupRows rows{std::vector<double>(max_replicas + 1, 0.0), std::vector<double>(max_replicas + 1, 0.0)};
  const double base = speedup ? base_goodput(*speedup, base_replicas) : static_cast<double>(base_replicas);
  if (!(base > 0)) return rows;
  for (std::size_t replicas = 1; replicas <= max_replicas; ++replicas) {
    const int count = static_cast<int>(replicas);
    const auto on = [&](int nodes) {
      return std::min((speedup ? speedup->goodput(nodes, count) : count) / base, kMaxSpeedup);
    };
    rows.one_node[replicas] = on(1);
    rows.many_nodes[replicas] = on(std::min(count, 2));
  }
  return rows;
}

bool speeds_up(const SpeedupRows& rows) {
  const auto positive = [](double speedup) { return speedup > 0; };
  return std::ranges::any_of(rows.one_node, positive) || std::ranges::any_of(rows.many_nodes, positive);
}

double restart_factor(const JobInfo& job, const PolluxRules& rules) {
  if (rules.objective == PolluxObjective::kReleased) return kReleasedRestart;
  const double age = rules.now - job.creation_time;
  const double cost = job.restart_cost.value_or(rules.restart_cost);
  if (!std::isfinite(age) || age <= 0) return cost > 0 ? 0 : 1;
  return std::max(age - std::max(job.num_restarts, 0) * cost, 0.0) / (age + cost);
}

std::size_t fair_replicas(double dominant_share, std::size_t jobs) {
  const double fair = std::ceil(1 / dominant_share / static_cast<double>(jobs));
  return static_cast<std::size_t>(std::clamp(fair, 1.0, static_cast<double>(kMaxReplicasPerJob)));
}

}  // namespace

PowerMean::PowerMean(double exponent) : exponent_(std::isnan(exponent) ? -1 : std::clamp(exponent, -20.0, 20.0)) {}

double PowerMean::term(double scaled_speedup) const {
  if (exponent_ == 0) return std::log(std::max(scaled_speedup, kNothing));
  const double power = std::pow(scaled_speedup + kNothing, exponent_);
  return exponent_ < 0 ? -power : power;
}

double PowerMean::mean(double sum_of_terms, std::size_t jobs) const {
  const double average = sum_of_terms / static_cast<double>(jobs);
  return exponent_ == 0 ? std::exp(average) : std::pow(std::fabs(average), 1 / exponent_);
}

PolluxProblem pollux_problem(const std::vector<const JobInfo*>& jobs, SearchProblem search, const PolluxRules& given) {
  PolluxRules rules = given;
  if (!(rules.restart_cost > 0)) rules.restart_cost = 0;
  const bool paper = rules.objective == PolluxObjective::kPaper;
  const PowerMean mean(rules.fairness);
  const std::vector<double> shares = dominant_shares(search);

  std::optional<AdaptiveObjective> adaptive;
  if (rules.objective == PolluxObjective::kAdaptive) adaptive.emplace(jobs, search, rules.restart_cost, rules.now);

  PolluxProblem problem{std::move(search), std::vector<SpeedupRows>(jobs.size()), std::vector<Constraint>(jobs.size())};
  for (std::size_t index = 0; index < jobs.size(); ++index) {
    SearchJob& job = problem.search.jobs[index];
    const double scale = shares[index] * static_cast<double>(problem.search.nodes.size());
    const auto value = [&](double speedup) { return paper ? mean.term(speedup * scale) : speedup * scale; };
    job.keep = paper ? mean.term(0) : 0;
    job.one_node = job.many_nodes = {job.keep};

    const std::int64_t max_replicas = possible_replicas(job, problem.search.nodes);
    const auto before = static_cast<std::size_t>(replica_count(job.previous));
    SpeedupRows& rows = problem.speedups[index];
    Constraint& what = problem.constraints[index];
    what = constraint(*jobs[index], job, max_replicas);
    if (what == Constraint::kNone) {
      const std::size_t base = paper ? fair_replicas(shares[index], jobs.size()) : 1;
      rows = speedups(jobs[index]->speedup.get(),
                      std::max(static_cast<std::size_t>(max_replicas),
                               job.pinned ? std::min(before, std::size_t{kMaxReplicasPerJob}) : 0),
                      static_cast<std::int64_t>(base));
      if (!job.pinned && !speeds_up(rows)) what = Constraint::kNoSpeedup;
    }
    if (what != Constraint::kNone) {
      rows = {};
      job.max_replicas = 0;
      job.previous.clear();
      continue;
    }
    job.max_replicas = static_cast<int>(rows.one_node.size()) - 1;
    if (adaptive) {
      adaptive->set_values(index, rows, job);
      continue;
    }
    const double factor = restart_factor(*jobs[index], rules);
    for (std::size_t replicas = 1; replicas < rows.one_node.size(); ++replicas) {
      job.one_node.push_back(value(rows.one_node[replicas] * factor));
      job.many_nodes.push_back(value(rows.many_nodes[replicas] * factor));
    }
    if (before < rows.one_node.size()) job.keep = value(rows(job.previous.size(), before));
  }
  return problem;
}

}  // namespace adaptdl::sched
