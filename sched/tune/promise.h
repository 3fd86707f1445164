// How promising the trials that are running are: the chance of each to end as the best trial of the study.
//
// The model: a trial that has the value v at step s ends with a normally distributed value, of mean v plus the mean
// change and of the standard deviation of the changes of other trials from their value at s to their last one. These
// are the completed trials that have reported later than at s, or if there are fewer than three such, all that have and
// did not fail. If there are fewer than three of these, the mean change is 0 and the standard deviation that of the
// last values of the running trials. So trials at different steps can be compared. The chance of a trial is the
// probability that its end value is better than those of the other running trials and than that of the best completed
// one, all independent; if no trial has a chance against the latter, it is left out.
//
// Giving each option a share, there of the trials and here of the devices, by the probability that it is the best one
// is due to W. R. Thompson, "On the likelihood that one unknown probability exceeds another", Biometrika 25, 1933.
//
// Results are the same on every processor (portable_math.h). Threading: pure functions.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tune/study.h"

namespace adaptdl::sched::tune {

// The least weight: what all trials have, whatever their chance.
inline constexpr double kMinPromise = 0.1;

// The end value of a trial, of which more is better.
struct Forecast {
  double mean = 0;
  double deviation = 0;  // standard deviation, >= 0
};

// The probability of each that it is the highest, and above `to_beat` if that is given and not out of reach. Their sum
// is 1. Probabilities below 1 % are rough. REQUIRES finite numbers.
std::vector<double> chances_of_best(const std::vector<Forecast>& forecasts, std::optional<double> to_beat);

// The weights of the running trials, by number: kMinPromise + (1 - kMinPromise) * chance / mean chance, whose mean
// is 1. A trial that has not reported has the mean; one whose last value is not a finite number, the least weight.
std::map<int, double> promise_weights(const Study& study, const std::vector<int>& running);

}  // namespace adaptdl::sched::tune
