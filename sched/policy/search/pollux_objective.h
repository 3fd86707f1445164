// The objective of Pollux: the sum or a power mean of the jobs' scaled speedups.
//
// A job's scaled speedup is its speedup x the share of its dominant resource that one replica takes x the number of
// nodes, so that a scaled speedup of 1 justifies one node. The scaled speedup is lower if the job must restart to get
// the allocation.
//
//   paper      power mean of speedups relative to a fair share of the cluster: ceil(1 / share / jobs) replicas on one
//              node. A changed allocation, including the first one, multiplies the speedup by
//              max(age - restarts x restart cost, 0) / (age + restart cost).
//   released   sum of speedups relative to one replica. A changed allocation multiplies the speedup by 0.9.
//   adaptive   sum of weighted speedups relative to one replica; see adaptive_objective.h.
//
// A power mean is a monotone function of a sum over jobs, so a search can add up the jobs' values in either case.
//
// Threading: the objective evaluates the jobs' speedup functions, which only one thread at a time may do.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/base/policy.h"
#include "policy/search/allocation_search.h"

namespace adaptdl::sched {

enum class PolluxObjective { kPaper, kReleased, kAdaptive };

// The power mean of scaled speedups, as a sum of terms. Exponent 0 yields the geometric mean; a more negative exponent
// is fairer. A job without replicas contributes as if its scaled speedup were 1e-3, so that it does not make the mean
// 0.
class PowerMean {
 public:
  // Clamps the exponent to [-20, 20]. NaN is replaced by -1.
  explicit PowerMean(double exponent);
  double term(double scaled_speedup) const;
  double mean(double sum_of_terms, std::size_t jobs) const;

 private:
  double exponent_;
};

// The speedups of one job by number of replicas, on one node and on several, relative to the objective's base.
struct SpeedupRows {
  std::vector<double> one_node, many_nodes;
  double operator()(std::size_t nodes, std::size_t replicas) const {
    return (nodes > 1 ? many_nodes : one_node)[replicas];
  }
};

// Why a job cannot be allocated, regardless of other jobs.
enum class Constraint { kNone, kNoNode, kAsksForNothing, kContradiction, kTooMany, kNoSpeedup };

struct PolluxProblem {
  SearchProblem search;
  std::vector<SpeedupRows> speedups;    // by job; empty unless its constraint is kNone
  std::vector<Constraint> constraints;  // by job
};

struct PolluxRules {
  PolluxObjective objective = PolluxObjective::kPaper;
  double fairness = -1;      // the exponent of the paper's power mean
  double restart_cost = 30;  // seconds
  double now = 0;
};

// Computes the values of all jobs' allocations. `search` contains the jobs, in the order of `jobs`, and the nodes, but
// no values yet (see make_search_frame()).
PolluxProblem pollux_problem(const std::vector<const JobInfo*>& jobs, SearchProblem search, const PolluxRules& rules);

}  // namespace adaptdl::sched
