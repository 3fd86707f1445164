// How much faster a job progresses with more replicas: its goodput relative to its goodput on one replica, with the
// best batch size for each number of replicas (GoodputFunction::optimize()).
//
// The model distinguishes only between one node and several nodes, not between numbers of nodes, so two rows of values
// cover all placements. A value is computed when it is first needed and then cached, so that millions of calls are
// cheap.
//
// Threading: an object must be used by one thread at a time, even for const functions, which share a cache.
#pragma once

#include <optional>
#include <vector>

#include "adaptdl/goodput.h"

namespace adaptdl::sched {

class SpeedupFunction {
 public:
  // Throws UsageError if the limits contradict each other (see GoodputFunction::optimize()). If a parameter is negative
  // or not finite, or gamma is below 1, all values of the function are 0 (see usable()).
  SpeedupFunction(const goodput::GoodputFunction& goodput, const goodput::Limits& limits);

  // Goodput relative to one replica; 0 without replicas or where the job cannot run. REQUIRES 0 <= nodes <= replicas.
  double operator()(int nodes, int replicas) const;

  // Samples per second, multiplied by the efficiency; 0 in the same cases as operator().
  double goodput(int nodes, int replicas) const;

  // Returns whether the job can run on one node with some number of replicas up to 64.
  bool usable() const;

  const goodput::GoodputFunction& goodput_function() const noexcept { return goodput_; }
  const goodput::Limits& limits() const noexcept { return limits_; }

 private:
  goodput::GoodputFunction goodput_;
  goodput::Limits limits_;
  bool finite_ = true;
  mutable std::vector<double> memory_[2];  // by replicas, on one node and on several; NaN if not computed yet
};

}  // namespace adaptdl::sched
