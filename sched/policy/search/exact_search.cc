#include "policy/search/exact_search.h"

#include <algorithm>
#include <cmath>

#include "policy/search/search_state.h"

namespace adaptdl::sched {
namespace {

constexpr std::size_t kMaxNodes = 6;
constexpr std::size_t kMaxJobs = 8;
constexpr std::size_t kMaxPlacements = 3000;  // per job
constexpr int kMaxSteps = 300'000;
constexpr double kTolerance = 1e-3;

class BranchAndBound {
 public:
  BranchAndBound(const SearchProblem& problem, double value) : problem_(problem), state_(problem), best_value_(value) {}

  std::optional<SearchResult> run() {
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      if (problem_.jobs[j].pinned) continue;
      jobs_.push_back(static_cast<int>(j));
      if (!list_placements(static_cast<int>(j))) return {};
    }
    bound_.assign(jobs_.size() + 1, 0);
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      if (problem_.jobs[j].pinned) bound_.back() += placement_value(problem_.jobs[j], problem_.jobs[j].previous);
    }
    for (std::size_t depth = jobs_.size(); depth-- > 0;)
      bound_[depth] = bound_[depth + 1] + placement_value(problem_.jobs[at(depth)], placements_[depth].front());
    descend(0, 0.0);
    return std::move(best_);
  }

 private:
  std::size_t at(std::size_t depth) const { return static_cast<std::size_t>(jobs_[depth]); }

  // Lists all placements that fit on the empty nodes, the most valuable first. Returns false if there are too many.
  bool list_placements(int job) {
    std::vector<Placement> all;
    Placement partial;
    if (!extend(job, 0, partial, all)) return false;
    const SearchJob& about = problem_.jobs[static_cast<std::size_t>(job)];
    std::ranges::stable_sort(all, std::greater<>(), [&](const Placement& p) { return placement_value(about, p); });
    placements_.push_back(std::move(all));
    return true;
  }

  bool extend(int job, int node, Placement& partial, std::vector<Placement>& all) const {
    const SearchJob& about = problem_.jobs[static_cast<std::size_t>(job)];
    if (all.size() > kMaxPlacements) return false;
    const int replicas = replica_count(partial);
    if (node == static_cast<int>(problem_.nodes.size())) {
      if (replicas == 0 || (replicas >= about.min_replicas && has_value(about, partial))) all.push_back(partial);
      return true;
    }
    const int max_count = std::min(state_.room(job, node), about.max_replicas - replicas);
    for (int count = 0; count <= max_count; ++count) {
      if (count > 0) partial.push_back({node, count});
      const bool within = extend(job, node + 1, partial, all);
      if (count > 0) partial.pop_back();
      if (!within) return false;
    }
    return true;
  }

  static bool has_value(const SearchJob& job, const Placement& placement) {
    const auto& values = placement.size() > 1 ? job.many_nodes : job.one_node;
    return static_cast<std::size_t>(replica_count(placement)) < values.size() || placement == job.previous;
  }

  void descend(std::size_t depth, double value) {
    if (++steps_ > kMaxSteps) return;
    if (depth == jobs_.size()) {
      if (value + bound_.back() > best_value_) {
        best_value_ = value + bound_.back();
        best_ = SearchResult{state_.placements(), best_value_};
      }
      return;
    }
    const int job = jobs_[depth];
    for (const Placement& placement : placements_[depth]) {
      const double with = value + placement_value(problem_.jobs[at(depth)], placement);
      if (with + bound_[depth + 1] <= best_value_ + kTolerance * std::abs(best_value_)) break;
      if (!state_.fits(job, placement)) continue;
      state_.place(job, placement);
      descend(depth + 1, with);
      state_.remove(job);
      if (steps_ > kMaxSteps) return;
    }
  }

  const SearchProblem& problem_;
  SearchState state_;
  std::vector<int> jobs_;                           // the jobs to place
  std::vector<std::vector<Placement>> placements_;  // by depth: the job's placements
  std::vector<double> bound_;                       // by depth: upper bound on the value of the remaining jobs
  std::optional<SearchResult> best_;
  double best_value_;
  int steps_ = 0;
};

}  // namespace

std::optional<SearchResult> search_exactly(const SearchProblem& problem, double value) {
  if (problem.nodes.size() > kMaxNodes || problem.jobs.size() > kMaxJobs) return {};
  return BranchAndBound(problem, value).run();
}

}  // namespace adaptdl::sched
