// What Pollux maximises: over jobs, the sum or a power mean of their scaled speedups.
//
// A job's scaled speedup is its speedup x the share that one replica has of the resource it takes most of x the number
// of nodes, so that 1 is the speedup that deserves one node; less if the job has to restart for it.
//
//   paper      speedup relative to a fair share of the cluster: ceil(1 / share / jobs) replicas on one node. A change
//              of allocation, the first start too, costs the factor
//              max(age - restarts x restart cost, 0) / (age + restart cost). Power mean.
//   released   speedup relative to one replica. A change costs the factor 0.9. Sum.
//   adaptive   ours, see adaptive_objective.h: weighted speedups relative to one replica. Sum.
//
// A power mean is monotone in a sum over jobs, so either is given to searches as values to be added up.
//
// Threading: free of state; asks the jobs' speedup functions.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/allocation_search.h"
#include "policy/policy.h"

namespace adaptdl::sched {

enum class PolluxObjective { kPaper, kReleased, kAdaptive };

// The power mean of scaled speedups, as a sum of terms: 0 is the geometric mean, more negative is fairer. Jobs with
// nothing count as 1e-3, so that the mean is not lost with the first of them.
class PowerMean {
 public:
  // Exponents beyond +-20, or not numbers, are taken as the nearest that is, or -1.
  explicit PowerMean(double exponent);
  double term(double scaled_speedup) const;
  double mean(double sum_of_terms, std::size_t jobs) const;

 private:
  double exponent_;
};

// Of one job, by replicas: on one node, on several. Relative to what the objective has as its base.
struct SpeedupRows {
  std::vector<double> one_node, many_nodes;
  double operator()(std::size_t nodes, std::size_t replicas) const {
    return (nodes > 1 ? many_nodes : one_node)[replicas];
  }
};

// What keeps a job from being allocated, whatever the others have.
enum class Hindrance { kNone, kNoNode, kAsksForNothing, kContradiction, kTooMany, kNoSpeedup };

struct PolluxProblem {
  SearchProblem search;
  std::vector<SpeedupRows> speedups;  // of each job; empty if it is hindered
  std::vector<Hindrance> hindrances;  // of each job
};

struct PolluxRules {
  PolluxObjective objective = PolluxObjective::kPaper;
  double fairness = -1;      // the exponent of the paper's power mean
  double restart_cost = 30;  // seconds
  double now = 0;
};

// The values of all jobs' allocations. `search` has the jobs, in the order of `jobs`, and the nodes, without values
// (see make_search_frame).
PolluxProblem pollux_problem(const std::vector<const JobInfo*>& jobs, SearchProblem search, const PolluxRules& rules);

}  // namespace adaptdl::sched
