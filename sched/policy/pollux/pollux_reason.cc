#include "policy/pollux/pollux_reason.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/counted.h"

namespace adaptdl::sched {
namespace {

// Names the first resource, if any, that no single node has enough of for one replica.
std::string missing(const SearchJob& job, const std::vector<SearchNode>& nodes,
                    const std::vector<std::string>& resources) {
  if (nodes.empty()) return "waits: the cluster has no nodes";
  for (std::size_t type = 0; type < job.demand.size(); ++type) {
    const bool somewhere =
        std::ranges::any_of(nodes, [&](const SearchNode& node) { return node.capacity[type] >= job.demand[type]; });
    if (!somewhere)
      return fmt::format("waits: needs {} {} per replica, more than any node has", job.demand[type], resources[type]);
  }
  return "waits: no node has all the resources that a replica needs";
}

std::string speedup(const PolluxOutcome& outcome) {
  if (!outcome.job.speedup) return "not measured yet";
  const auto replicas = static_cast<std::size_t>(outcome.replicas);
  if (replicas >= outcome.speedups.one_node.size()) return "as before";
  const double times = outcome.speedups(static_cast<std::size_t>(outcome.nodes), replicas);
  return fmt::format("{} times {} goodput", times < 10 ? fmt::format("{:.2g}", times) : fmt::format("{:.0f}", times),
                     outcome.objective == PolluxObjective::kPaper ? "its fair share's" : "one replica's");
}

}  // namespace

std::string pollux_reason(const PolluxOutcome& outcome, const std::vector<SearchNode>& nodes,
                          const std::vector<std::string>& resources) {
  const JobInfo& job = outcome.job;
  const std::string size = counted(outcome.replicas, "replica") + " on " + counted(outcome.nodes, "node");
  if (outcome.search.pinned) return fmt::format("keeps {}: not preemptible", size);
  switch (outcome.constraint) {
    case Constraint::kNone:
      break;
    case Constraint::kNoNode:
      return missing(outcome.search, nodes, resources);
    case Constraint::kAsksForNothing:
      return "waits: requests no resources";
    case Constraint::kContradiction:
      if (job.max_replicas < 1) return fmt::format("waits: its maximum is {}", counted(job.max_replicas, "replica"));
      return fmt::format("waits: needs at least {}, but its maximum is {}", counted(job.min_replicas, "replica"),
                         job.max_replicas);
    case Constraint::kTooMany:
      if (job.min_replicas > kMaxReplicasPerJob)
        return fmt::format("waits: needs at least {} replicas, but no job gets more than {}", job.min_replicas,
                           kMaxReplicasPerJob);
      return fmt::format("waits: needs at least {}, but the nodes have room for fewer",
                         counted(job.min_replicas, "replica"));
    case Constraint::kNoSpeedup:
      return "waits: its hints predict no progress on any number of replicas";
  }
  if (outcome.replicas > 0) return fmt::format("{}{}: {}", outcome.changed ? "" : "keeps ", size, speedup(outcome));
  if (outcome.had > 0)
    return fmt::format("gives up {}: other jobs make better use of the resources", counted(outcome.had, "replica"));
  if (job.min_replicas > 1)
    return fmt::format("waits: other jobs make better use of the resources that {} would need",
                       counted(job.min_replicas, "replica"));
  return "waits: other jobs make better use of the nodes";
}

}  // namespace adaptdl::sched
