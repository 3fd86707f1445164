// How promising the running trials are: the chance of each to end as the best trial of the study.
//
// The model: a trial that has the value v at step s ends with a normally distributed value. Its mean is v plus the mean
// change of other trials from s to their last step, and its standard deviation is that of these changes. The other
// trials are the completed ones that have reported later than at s or, if there are fewer than three of these, all that
// have and did not fail. If there are still fewer than three, the mean change is 0 and the standard deviation is that
// of the last values of the running trials. So trials at different steps can be compared. The chance of a trial is the
// probability that its end value is better than those of the other running trials and that of the best completed one,
// all independent; if no trial has a chance against the latter, it is left out.
//
// Giving each option a share by the probability that it is the best one is due to W. R. Thompson, "On the likelihood
// that one unknown probability exceeds another", Biometrika 25, 1933. There the shares are of trials, here of devices.
//
// Results are the same on every processor (portable_math.h).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tune/study.h"

namespace adaptdl::sched::tune {

// The minimum weight, which every trial has whatever its chance.
inline constexpr double kMinPromise = 0.1;

// The predicted end value of a trial; higher is better.
struct Forecast {
  double mean = 0;
  double deviation = 0;  // standard deviation, >= 0
};

// Returns, for each forecast, the probability that it is the highest and, if `to_beat` is given and within reach, that
// it exceeds `to_beat`. The sum is 1. Probabilities below 1 % are rough. REQUIRES finite numbers.
std::vector<double> chances_of_best(const std::vector<Forecast>& forecasts, std::optional<double> to_beat);

// Returns the weights of the running trials, by number: kMinPromise + (1 - kMinPromise) * chance / mean chance, whose
// mean is 1. A trial that has not reported has the mean weight, and one whose last value is not finite the minimum.
std::map<int, double> promise_weights(const Study& study, const std::vector<int>& running);

}  // namespace adaptdl::sched::tune
