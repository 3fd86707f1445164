#include "policy/queue/fifo.h"

#include <fmt/format.h>

#include "policy/queue/queue_order.h"

namespace adaptdl::sched {
namespace {

class Fifo final : public Policy {
 public:
  Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>& /*state*/) const override {
    FreeNodes free(problem.nodes);
    Decision decision = keep_pinned(problem, free);
    const std::vector<const JobInfo*> jobs = by_arrival(problem);
    for (const JobInfo* job : jobs) {
      const Allocation& previous = previous_allocation(problem, *job);
      if (decision.reasons.contains(job->name) || previous.empty()) continue;
      if (static_cast<int>(previous.size()) != fixed_replicas(*job) || !free.take(previous, job->resources)) continue;
      decision.allocations[job->name] = previous;
      decision.reasons[job->name] = fmt::format("keeps {} until it completes", describe(previous));
    }
    start_waiting(problem, jobs, free, decision);
    return decision;
  }

  bool adapts_batch_size() const override { return false; }
  bool separates_distributed_jobs() const override { return false; }

 private:
  static void start_waiting(const Problem& problem, const std::vector<const JobInfo*>& jobs, FreeNodes& free,
                            Decision& decision) {
    const FreeNodes empty(problem.nodes);
    const JobInfo* head = nullptr;  // the head of the queue, if it has to wait
    for (const JobInfo* job : jobs) {
      if (decision.reasons.contains(job->name)) continue;
      const int replicas = fixed_replicas(*job);
      const bool possible = replicas > 0 && empty.room(job->resources) >= replicas;
      Allocation& allocation = decision.allocations[job->name];
      std::string& reason = decision.reasons[job->name];
      if (!head) allocation = free.place(replicas, job->resources);
      if (!allocation.empty()) {
        reason = fmt::format("{}: reached the head of the queue", describe(allocation));
      } else if (head && possible) {
        reason = fmt::format("waits behind job '{}'", head->name);
      } else {
        reason = shortage_reason(empty, *job, replicas);
        if (possible) head = job;
      }
    }
  }
};

}  // namespace

std::unique_ptr<Policy> make_fifo() { return std::make_unique<Fifo>(); }

}  // namespace adaptdl::sched
