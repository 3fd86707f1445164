#include "policy/queue/optimus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "policy/queue/queue_order.h"

namespace adaptdl::sched {
namespace {

struct Contender {
  const JobInfo* job;
  int replicas = 0;
  double gain = 0;  // seconds that one more replica saves; 0 if the job cannot have or use more
};

double gain_of_one_more(const Contender& candidate) {
  const JobInfo& job = *candidate.job;
  if (!job.remaining_time || candidate.replicas >= std::min(job.max_replicas, kMaxReplicasPerJob)) return 0;
  const double gain = job.remaining_time(candidate.replicas) - job.remaining_time(candidate.replicas + 1);
  return std::isfinite(gain) ? std::max(gain, 0.0) : 0;
}

// Chooses how many replicas each job gets. The result does not contain jobs whose allocation is already decided or that
// do not fit.
std::vector<Contender> choose_replicas(const Problem& problem, FreeNodes free, Decision& decision) {
  const FreeNodes empty(problem.nodes);
  std::vector<Contender> candidates;
  for (const JobInfo* job : by_arrival(problem)) {
    if (decision.reasons.contains(job->name)) continue;
    const int min_replicas = std::max(job->min_replicas, 1);
    const bool contradiction = min_replicas > std::min(job->max_replicas, kMaxReplicasPerJob);
    if (contradiction || free.place(min_replicas, job->resources).empty()) {
      decision.allocations[job->name] = {};
      decision.reasons[job->name] = shortage_reason(empty, *job, contradiction ? 0 : min_replicas);
      continue;
    }
    candidates.push_back({job, min_replicas, 0});
    candidates.back().gain = gain_of_one_more(candidates.back());
  }
  while (!candidates.empty()) {
    Contender& best = *std::ranges::max_element(candidates, {}, &Contender::gain);
    if (!(best.gain > 0)) break;
    if (free.place(1, best.job->resources).empty()) {
      best.gain = 0;  // other jobs may request less per replica
      continue;
    }
    ++best.replicas;
    best.gain = gain_of_one_more(best);
  }
  return candidates;
}

class Optimus final : public Policy {
 public:
  Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>& /*state*/) const override {
    FreeNodes free(problem.nodes);
    Decision decision = keep_pinned(problem, free);
    std::vector<Contender> candidates = choose_replicas(problem, free, decision);
    std::erase_if(candidates, [&](const Contender& candidate) {
      const Allocation& previous = previous_allocation(problem, *candidate.job);
      if (static_cast<int>(previous.size()) != candidate.replicas) return false;
      if (!free.take(previous, candidate.job->resources)) return false;
      decision.allocations[candidate.job->name] = previous;
      decision.reasons[candidate.job->name] = fmt::format("keeps {}", describe(previous));
      return true;
    });
    std::ranges::stable_sort(candidates, {}, &Contender::replicas);
    for (const Contender& candidate : candidates) place(candidate, free, decision);
    return decision;
  }

  bool adapts_batch_size() const override { return false; }
  bool separates_distributed_jobs() const override { return false; }

 private:
  static void place(const Contender& candidate, FreeNodes& free, Decision& decision) {
    const JobInfo& job = *candidate.job;
    Allocation allocation = free.place(candidate.replicas, job.resources);
    std::string& reason = decision.reasons[job.name];
    if (allocation.empty()) {
      reason = "waits: the free resources are too fragmented for its replicas";
    } else if (!job.remaining_time || !std::isfinite(job.remaining_time(candidate.replicas))) {
      reason = fmt::format("{}: remaining time unknown", describe(allocation));
    } else {
      reason = fmt::format("{}: {:.0f}s remaining", describe(allocation), job.remaining_time(candidate.replicas));
    }
    decision.allocations[job.name] = std::move(allocation);
  }
};

}  // namespace

std::unique_ptr<Policy> make_optimus() { return std::make_unique<Optimus>(); }

}  // namespace adaptdl::sched
