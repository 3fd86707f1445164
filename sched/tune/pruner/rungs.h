// A study's rungs, and which of them each trial has reached.
#pragma once

#include <optional>
#include <vector>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

class Rungs {
 public:
  // `first` is the step of rung 0; if unset, see PrunerOptions. REQUIRES factor >= 2.
  Rungs(const Study& study, int factor, std::optional<double> first);

  // Returns the step of a rung. REQUIRES that a trial has reported, or that the step of rung 0 was given.
  double step(int rung) const;

  // Returns the value that the trial reported at the rung, which may be NaN, or nullopt if it has not reached the rung.
  std::optional<double> value(const Trial& trial, int rung) const;
  // Returns the highest rung that the trial has reached, or -1 if it has reached none.
  int highest(const Trial& trial) const;

 private:
  int factor_;
  std::optional<double> first_;
};

// Returns whether the value a is strictly better than b. Any number is better than NaN.
bool is_better(double a, double b, Direction direction);

// A trial that is compared with others at a rung.
struct Ranked {
  const Trial* trial = nullptr;
  double value = 0;
};

// Sorts the trials, best first. The sort is stable.
void rank(std::vector<Ranked>& trials, Direction direction);

}  // namespace adaptdl::sched::tune
