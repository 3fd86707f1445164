// The rungs of a study, and who is how far on them.
//
// Threading: plain values.
#pragma once

#include <optional>
#include <vector>

#include "tune/study.h"

namespace adaptdl::sched::tune {

class Rungs {
 public:
  // `first`: the step of rung 0; none: see PrunerOptions. REQUIRES factor >= 2.
  Rungs(const Study& study, int factor, std::optional<double> first);

  // REQUIRES that a trial has reported, or that rung 0 was given.
  double step(int rung) const;

  // What the trial reported at the rung; none if it is not so far. Not a number counts as a value.
  std::optional<double> value(const Trial& trial, int rung) const;
  // The highest rung that it has reached; -1: none.
  int highest(const Trial& trial) const;

 private:
  int factor_;
  std::optional<double> first_;
};

// Whether the value a is strictly better than b. Any number is better than one that is not a number.
bool is_better(double a, double b, Direction direction);

// A trial of those that are compared at a rung.
struct Ranked {
  const Trial* trial = nullptr;
  double value = 0;
};

// The best first; equal ones stay in their order.
void rank(std::vector<Ranked>& trials, Direction direction);

}  // namespace adaptdl::sched::tune
