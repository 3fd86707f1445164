// What the adaptive policy maximises: the sum of the jobs' speedups s(r), relative to one replica, weighted so that
// jobs leave soon without large ones being starved.
//
//   value = w s(r) f                  s of one node or of several; f = 1 for a first start, and for what stays as it is
//   w = rank^0.4 full^-0.4 left^-0.1 late^0.3 weight
//
// `left` is the time that the job has still to train on one replica, `full` its speedup on the whole cluster, `rank`
// its place among all jobs, 1 for the one with the most of left / full, and `late` the time that it will have taken
// over the time that it would have taken, both on a fair share of the cluster, if more than 1 (finish-time fairness:
// Mahajan et al., NSDI 2020). That less is left counts is as in SRPT; that the weight goes by rank and by what the job
// could reach at best is the form that is optimal where all jobs have the same power of replicas as speedup (heSRPT:
// Berg et al., Performance Evaluation 2020). The exponents were found on the workloads of docs/scheduling.md. `weight`
// is that of the job (JobInfo), 1 unless its owner weighs it against others.
//
// A changed allocation costs the job restart_cost seconds, which its next stay has to earn:
//
//   f = max(1 - restart_cost / h, 0.05),  h = min(age / (restarts + 1) within bounds, left / s(r) + restart_cost)
//
// How long a job kept its allocations so far says how long it will keep the next one; a job about to end is best left
// alone. Beyond four replicas only even numbers, and beyond one node only whole nodes are worth having: parts are left
// to small jobs.
//
// Threading: free of state; asks the jobs' speedup functions.
#pragma once

#include <vector>

#include "policy/pollux_objective.h"

namespace adaptdl::sched {

// More than Pollux ventures: a job starts with up to four replicas, and then gets at most four times as many as it was
// measured with. What it learns sooner is worth more than what a bad guess costs.
int adaptive_limit(const JobInfo& job);

class AdaptiveObjective {
 public:
  // `search` has the jobs, in the order of `jobs`, and all nodes. `restart_cost`: of jobs that do not have their own.
  AdaptiveObjective(const std::vector<const JobInfo*>& jobs, const SearchProblem& search, double restart_cost,
                    double now);

  // Fills in one_node, many_nodes and keep from the job's speedups.
  void set_values(std::size_t index, const SpeedupRows& speedups, SearchJob& job) const;

 private:
  struct Weighed {
    double left = 0;     // seconds on one replica
    double horizon = 0;  // seconds that an allocation is expected to stay
    double weight = 1;
    double restart_cost = 0;
    std::size_t node = 1;  // replicas that an empty node takes
    bool measured = false;
  };
  static double changed(const Weighed& job, double speedup);

  std::vector<Weighed> jobs_;
};

}  // namespace adaptdl::sched
