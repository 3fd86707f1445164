// Explains a job's allocation in one clause.
#pragma once

#include <string>

#include "policy/search/pollux_objective.h"

namespace adaptdl::sched {

struct PolluxOutcome {
  const JobInfo& job;
  const SearchJob& search;
  const SpeedupRows& speedups;
  Constraint constraint = Constraint::kNone;
  int replicas = 0, nodes = 0;  // in its new allocation
  int had = 0;                  // replicas in its previous allocation
  bool changed = false;
  PolluxObjective objective = PolluxObjective::kPaper;
};

// `resources` holds the names of the resources in SearchJob::demand.
std::string pollux_reason(const PolluxOutcome& outcome, const std::vector<SearchNode>& nodes,
                          const std::vector<std::string>& resources);

}  // namespace adaptdl::sched
