// How much faster a job makes progress with more replicas: its goodput there over that of a base, by default one
// replica. Batch sizes are the best for each number of replicas (GoodputFunction::optimize).
//
// The model tells several nodes from one, not how many there are, so two rows of values cover all placements. A value
// is computed when it is first asked for and remembered: millions of queries cost a look-up each.
//
// Threading: one thread at a time, const or not.
#pragma once

#include <optional>
#include <vector>

#include "adaptdl/goodput.h"

namespace adaptdl::sched {

class SpeedupFunction {
 public:
  // Throws UsageError if the limits contradict each other (see GoodputFunction::optimize). Parameters that are not
  // finite, or negative, give a function whose every value is 0 (see usable()).
  SpeedupFunction(const goodput::GoodputFunction& goodput, const goodput::Limits& limits);

  // Goodput over that of one replica. 0 for no replicas, and where the job cannot run. REQUIRES 0 <= nodes <= replicas.
  double operator()(int nodes, int replicas) const;

  // Samples a second, weighted by their efficiency. 0 as above.
  double goodput(int nodes, int replicas) const;

  // Whether it can run on one replica, or at least on some number up to 64.
  bool usable() const;

  const goodput::GoodputFunction& goodput_function() const noexcept { return goodput_; }
  const goodput::Limits& limits() const noexcept { return limits_; }

 private:
  goodput::GoodputFunction goodput_;
  goodput::Limits limits_;
  bool finite_ = true;
  mutable std::vector<double> memory_[2];  // by replicas: on one node, on several; NaN: not asked for yet
};

}  // namespace adaptdl::sched
