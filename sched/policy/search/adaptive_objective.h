// The objective of the adaptive policy: the sum of the jobs' speedups s(r) relative to one replica, weighted so that
// jobs complete soon but large ones do not starve.
//
//   value = w s(r) f                  s on one node or on several; f = 1 for a first start or an unchanged allocation
//   w = rank^0.4 full^-0.4 left^-0.1 late^0.3 weight
//
// `left` is the job's remaining training time on one replica, and `full` is its speedup on the whole cluster. `rank` is
// the job's rank among all jobs; the job with the largest left / full has rank 1. `late` is the job's total time if it
// gets a fair share of the cluster from now on, divided by its total time with a fair share from the start; it is at
// least 1 (finish-time fairness: Mahajan et al., NSDI 2020). As in SRPT, a job with less time left has a larger weight.
// Weights by rank and by the best possible speedup are optimal if the speedups of all jobs are the same power of the
// number of replicas (heSRPT: Berg et al., Performance Evaluation 2020). The exponents were tuned on the workloads of
// docs/scheduling.md. `weight` is JobInfo::weight, which is 1 unless the owner weighs the job against others.
//
// The speedup of a job that has not been measured yet is assumed to be the square root of its number of replicas, so
// that the job gets replicas soon, and usually leaves some to a job that makes good use of them. Its remaining time is
// assumed to be at least 10 minutes.
//
// A changed allocation costs the job restart_cost seconds, which the job must regain while it keeps the allocation:
//
//   f = max(1 - restart_cost / h, 0.05),  h = min(age / (restarts + 1) within bounds, left / s(r) + restart_cost)
//
// A job that loses its allocation will be restarted later, so having no replicas has the value -w s(r) (1 - f), where r
// is its current number of replicas.
//
// How long a job has kept its allocations so far predicts how long it will keep the next one, and a job that is about
// to complete should not be moved. Above four replicas, the objective rounds the number of replicas down to an even
// number, and above one node, to whole nodes, so that parts of nodes are left for small jobs.
//
// Threading: the objective evaluates the jobs' speedup functions, which only one thread at a time may do.
#pragma once

#include <vector>

#include "policy/search/pollux_objective.h"

namespace adaptdl::sched {

// Returns a job's maximum number of replicas: four until the job has been measured, then four times the largest number
// of replicas that it was measured with. Pollux is more cautious, but what a job learns early is worth more than what a
// bad guess costs.
int adaptive_limit(const JobInfo& job);

class AdaptiveObjective {
 public:
  // `search` contains the jobs, in the order of `jobs`, and all nodes. `restart_cost` applies to jobs that do not set
  // their own.
  AdaptiveObjective(const std::vector<const JobInfo*>& jobs, const SearchProblem& search, double restart_cost,
                    double now);

  // Sets one_node, many_nodes and keep from the job's speedups.
  void set_values(std::size_t index, const SpeedupRows& speedups, SearchJob& job) const;

 private:
  struct Weighed {
    double left = 0;     // seconds on one replica
    double horizon = 0;  // seconds for which the job is expected to keep an allocation
    double weight = 1;
    double restart_cost = 0;
    std::size_t node = 1;  // replicas that fit on the roomiest empty node
    bool measured = false;
  };
  static double changed(const Weighed& job, double speedup);

  std::vector<Weighed> jobs_;
};

}  // namespace adaptdl::sched
