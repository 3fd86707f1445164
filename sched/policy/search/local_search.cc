#include "policy/search/local_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adaptdl::sched {
namespace {

// The limit on node visits by all moves together; that many visits take about 20 ms.
constexpr std::int64_t kWork = 1'500'000;
constexpr int kSizes = 8;     // sizes to try per job
constexpr int kNodes = 24;    // nodes to try per size
constexpr int kVictims = 12;  // limit on the jobs evicted per move

class LocalSearch {
 public:
  LocalSearch(const SearchProblem& problem, const std::vector<SizeChoice>& ideal, SearchState& state)
      : problem_(problem), ideal_(ideal), state_(state) {}

  void run() {
    std::vector<int> order(problem_.jobs.size());
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<int>(j);
    for (bool improved = true; improved && work_ < kWork;) {
      std::ranges::stable_sort(order, std::greater<>(), [&](int job) { return shortfall(job); });
      improved = false;
      for (const int job : order) {
        if (work_ >= kWork) break;
        if (!problem_.jobs[index(job)].pinned && shortfall(job) > tolerance()) improved |= improve(job);
      }
    }
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  double shortfall(int job) const { return ideal_[index(job)].value - state_.value_of(job); }
  double tolerance() const { return 1e-9 * std::max(1.0, std::abs(state_.value())); }
  void count_work(std::size_t visits) { work_ += static_cast<std::int64_t>(visits * problem_.nodes.size()); }

  // The placements before a move, so that it can be undone.
  struct Undo {
    std::vector<std::pair<int, Placement>> removed;
  };
  void take(int job, Undo& undo) {
    undo.removed.emplace_back(job, state_.placement(job));
    state_.remove(job);
  }
  void take_back(const Undo& undo) {
    for (const auto& [job, placement] : undo.removed) state_.remove(job);
    for (const auto& [job, placement] : undo.removed) state_.place(job, placement);
  }

  bool improve(int job) {
    const double before = state_.value();
    Undo undo;
    take(job, undo);
    count_work(4);
    state_.place(job, state_.best_placement(job));
    if (state_.value() > before + tolerance()) return true;
    take_back(undo);
    for (const Placement& target : targets(job)) {
      if (work_ >= kWork) return false;
      if (try_target(job, target)) return true;
    }
    return false;
  }

  bool try_target(int job, const Placement& target) {
    const double before = state_.value();
    Undo undo;
    take(job, undo);
    if (make_way(job, target, undo)) {
      state_.place(job, target);
      resettle(undo);
      count_work(4 * undo.removed.size());
      if (state_.value() > before + tolerance()) return true;
    }
    take_back(undo);
    return false;
  }

  // Evicts the jobs that lose the least value until the target fits. Returns false if this is impossible or would evict
  // too many jobs.
  bool make_way(int job, const Placement& target, Undo& undo) {
    for (const Share& share : target) {
      const bool distributed = target.size() > 1;
      while (state_.room(job, share.node) < share.replicas ||
             (distributed && !state_.open_to_distributed(share.node))) {
        const bool only_distributed = state_.room(job, share.node) >= share.replicas;
        const int victim = cheapest_on(share.node, only_distributed);
        if (victim < 0 || undo.removed.size() > kVictims) return false;
        take(victim, undo);
      }
    }
    return true;
  }

  int cheapest_on(int node, bool only_distributed) const {
    int cheapest = -1;
    double min_loss = 0;
    for (const int job : state_.jobs_on(node)) {
      if (problem_.jobs[index(job)].pinned) continue;
      if (only_distributed && state_.placement(job).size() < 2) continue;
      const double loss = loss_of(job);
      if (cheapest < 0 || loss < min_loss || (loss == min_loss && job < cheapest)) cheapest = job, min_loss = loss;
    }
    return cheapest;
  }

  // Returns the value per replica that the job would lose without its placement.
  double loss_of(int job) const {
    return (state_.value_of(job) - placement_value(problem_.jobs[index(job)], {})) /
           std::max(1, replica_count(state_.placement(job)));
  }

  // Places the evicted jobs again, those with the most to lose first.
  void resettle(const Undo& undo) {
    std::vector<std::pair<double, int>> evicted;
    for (std::size_t i = 1; i < undo.removed.size(); ++i) {
      const auto& [job, placement] = undo.removed[i];
      evicted.emplace_back(-placement_value(problem_.jobs[index(job)], placement), job);
    }
    std::ranges::sort(evicted);
    for (const auto& [value, job] : evicted) state_.place(job, state_.best_placement(job));
  }

  // Returns placements that are worth more to the job than its current one, the ideal size first.
  std::vector<Placement> targets(int job) {
    const SearchJob& about = problem_.jobs[index(job)];
    const double worth = state_.value_of(job) + tolerance();
    std::vector<Placement> found;
    if (!about.previous.empty() && about.keep > worth) found.push_back(about.previous);
    std::vector<int> sizes;
    const auto add_size = [&](int r) {
      if (r >= std::max(about.min_replicas, 1) && r <= about.max_replicas && std::ranges::find(sizes, r) == sizes.end())
        sizes.push_back(r);
    };
    const int ideal = ideal_[index(job)].replicas;
    add_size(ideal);
    for (int step = 1; static_cast<int>(sizes.size()) < kSizes && step < ideal; ++step) add_size(ideal - step);
    const std::vector<Candidate> candidates = candidates_for(job);
    for (const int r : sizes) {
      const auto is_better = [&](const std::vector<double>& values) {
        return index(r) < values.size() && values[index(r)] > worth;
      };
      const std::size_t before = found.size();
      if (is_better(about.one_node)) add_one_node(r, candidates, found);
      if (found.size() == before && is_better(about.many_nodes)) add_many_nodes(r, candidates, found);
    }
    return found;
  }

  // A node after all jobs that are not pinned have been evicted from it.
  struct Candidate {
    double cost;  // value that the evicted jobs lose, per replica of this job that then fits
    int room, node;
  };

  // Returns the nodes on which replicas of the job fit after evictions, the cheapest first.
  std::vector<Candidate> candidates_for(int job) {
    count_work(3);
    std::vector<Candidate> candidates;
    for (int node = 0; node < static_cast<int>(problem_.nodes.size()); ++node) {
      std::int64_t room = state_.room(job, node);
      double cost = 0;
      for (const int other : state_.jobs_on(node)) {
        if (problem_.jobs[index(other)].pinned) continue;
        for (const Share& share : state_.placement(other)) {
          if (share.node == node) room += std::int64_t{share.replicas} * replicas_for(other, job);
        }
        if (other != job) cost += state_.value_of(other) - placement_value(problem_.jobs[index(other)], {});
      }
      const int bounded = static_cast<int>(std::min<std::int64_t>(room, std::numeric_limits<int>::max()));
      if (bounded > 0) candidates.push_back({cost / bounded, bounded, node});
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::cost);
    return candidates;
  }

  static void add_one_node(int replicas, const std::vector<Candidate>& candidates, std::vector<Placement>& found) {
    int added = 0;
    for (const Candidate& candidate : candidates) {
      if (candidate.room < replicas) continue;
      found.push_back({{candidate.node, replicas}});
      if (++added == kNodes) return;
    }
  }

  static void add_many_nodes(int replicas, const std::vector<Candidate>& candidates, std::vector<Placement>& found) {
    Placement spread;
    for (const Candidate& candidate : candidates) {
      if (replicas == 0) break;
      const int taken = std::min(replicas, candidate.room);
      spread.push_back({candidate.node, taken});
      replicas -= taken;
    }
    std::ranges::sort(spread, {}, &Share::node);
    if (replicas == 0) found.push_back(spread);
  }

  // Returns roughly how many replicas of `job` fit in the place of one replica of `other`.
  int replicas_for(int other, int job) const {
    const auto& theirs = problem_.jobs[index(other)].demand;
    const auto& ours = problem_.jobs[index(job)].demand;
    if (theirs == ours) return 1;
    std::int64_t count = 1 << 20;
    for (std::size_t r = 0; r < ours.size(); ++r) {
      if (ours[r] > 0) count = std::min(count, std::max<std::int64_t>(theirs[r], 0) / ours[r]);
    }
    return static_cast<int>(count);
  }

  const SearchProblem& problem_;
  const std::vector<SizeChoice>& ideal_;
  SearchState& state_;
  std::int64_t work_ = 0;
};

}  // namespace

void improve(const SearchProblem& problem, const std::vector<SizeChoice>& ideal, SearchState& state) {
  LocalSearch(problem, ideal, state).run();
}

}  // namespace adaptdl::sched
