#include "policy/queue/tiresias.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "policy/queue/queue_order.h"

namespace adaptdl::sched {
namespace {

constexpr double kFirstQueueService = 16 * 3600;  // replica-seconds

struct TiresiasState final : PolicyState {
  std::vector<std::string> second_queue;  // names of jobs in the order in which they entered the queue
};

struct Queues {
  std::vector<const JobInfo*> jobs;  // those in the first queue, then those in the second
  std::size_t first = 0;             // number of jobs in the first queue
  std::shared_ptr<TiresiasState> state = std::make_shared<TiresiasState>();
};

Queues sort_into_queues(const Problem& problem, const PolicyState* last) {
  Queues queues;
  std::map<std::string, const JobInfo*> second;
  std::vector<const JobInfo*> demoted;
  const auto* before = dynamic_cast<const TiresiasState*>(last);
  const std::set<std::string> known =
      before ? std::set(before->second_queue.begin(), before->second_queue.end()) : std::set<std::string>();
  for (const JobInfo* job : by_arrival(problem)) {
    if (known.contains(job->name)) {
      second.emplace(job->name, job);
    } else {
      (job->attained_service >= kFirstQueueService ? demoted : queues.jobs).push_back(job);
    }
  }
  queues.first = queues.jobs.size();
  if (before) {
    for (const std::string& name : before->second_queue) {
      if (const auto job = second.find(name); job != second.end()) queues.jobs.push_back(job->second);
    }
  }
  queues.jobs.insert(queues.jobs.end(), demoted.begin(), demoted.end());
  for (std::size_t i = queues.first; i < queues.jobs.size(); ++i) {
    queues.state->second_queue.push_back(queues.jobs[i]->name);
  }
  return queues;
}

class Tiresias final : public Policy {
 public:
  Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>& state) const override {
    FreeNodes free(problem.nodes);
    Decision decision = keep_pinned(problem, free);
    const Queues queues = sort_into_queues(problem, state.get());
    decision.state = queues.state;
    std::vector<std::size_t> chosen = choose(problem, queues, free, decision);
    // Jobs that keep running are kept in place before room is found for the others.
    std::erase_if(chosen, [&](std::size_t i) { return keep(problem, *queues.jobs[i], free, decision); });
    for (const std::size_t i : chosen) {
      const JobInfo& job = *queues.jobs[i];
      Allocation allocation = free.place(fixed_replicas(job), job.resources);
      decision.reasons[job.name] = allocation.empty()
                                       ? "waits: the free resources are too fragmented for its replicas"
                                       : fmt::format("{}; {} in the {} queue", describe(allocation),
                                                     place_in_queue(queues, i), i < queues.first ? "first" : "second");
      decision.allocations[job.name] = std::move(allocation);
    }
    return decision;
  }

  bool adapts_batch_size() const override { return false; }
  bool separates_distributed_jobs() const override { return false; }

 private:
  // Returns the jobs for which there is room, in queue order. For the others, records in `decision` why they wait.
  static std::vector<std::size_t> choose(const Problem& problem, const Queues& queues, FreeNodes free,
                                         Decision& decision) {
    const FreeNodes empty(problem.nodes);
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < queues.jobs.size(); ++i) {
      const JobInfo& job = *queues.jobs[i];
      if (decision.reasons.contains(job.name)) continue;
      const int replicas = fixed_replicas(job);
      if (!free.place(replicas, job.resources).empty()) {
        chosen.push_back(i);
      } else {
        decision.allocations[job.name] = {};
        decision.reasons[job.name] = fmt::format("{}; {} in the {} queue", shortage_reason(empty, job, replicas),
                                                 place_in_queue(queues, i), i < queues.first ? "first" : "second");
      }
    }
    return chosen;
  }

  static bool keep(const Problem& problem, const JobInfo& job, FreeNodes& free, Decision& decision) {
    const Allocation& previous = previous_allocation(problem, job);
    if (previous.empty() || static_cast<int>(previous.size()) != fixed_replicas(job)) return false;
    if (!free.take(previous, job.resources)) return false;
    decision.allocations[job.name] = previous;
    decision.reasons[job.name] = fmt::format("keeps {}", describe(previous));
    return true;
  }

  static std::string place_in_queue(const Queues& queues, std::size_t i) {
    return fmt::format("place {}", i < queues.first ? i + 1 : i - queues.first + 1);
  }
};

}  // namespace

std::unique_ptr<Policy> make_tiresias() { return std::make_unique<Tiresias>(); }

}  // namespace adaptdl::sched
