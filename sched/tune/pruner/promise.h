// Computes how promising the running trials are: each trial's chance of ending as the best trial of the study.
//
// The model assumes that the final value of a trial with value v at step s is normally distributed. The mean is v plus
// the mean change of other trials from s to their last step, and the standard deviation is the standard deviation of
// these changes. The other trials are the completed ones that reported after s or, if there are fewer than three of
// these, all trials that reported after s and did not fail. If there are still fewer than three, the mean change is 0,
// and the standard deviation is taken from the last values of the running trials. This makes trials at different steps
// comparable. A trial's chance is the probability that its final value is better than the final values of all other
// running trials and the value of the best completed trial, if all are independent. If no running trial has a chance
// against the best completed trial, the completed trial is ignored.
//
// The idea of giving each option a share by its probability of being the best is due to W. R. Thompson, "On the
// likelihood that one unknown probability exceeds another", Biometrika 25, 1933. That paper divides trials among the
// options; here, devices are divided.
//
// Results are the same on every processor (portable_math.h).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

// The minimum weight of a trial, however small its chance.
inline constexpr double kMinPromise = 0.1;

// The predicted final value of a trial; higher is better.
struct Forecast {
  double mean = 0;
  double deviation = 0;  // standard deviation, >= 0
};

// Returns, for each forecast, the probability that its final value is the highest. If `to_beat` is given and within
// reach, the probabilities are conditional on the highest value exceeding `to_beat`. They add up to 1; those below 1%
// are inaccurate. REQUIRES finite numbers.
std::vector<double> chances_of_best(const std::vector<Forecast>& forecasts, std::optional<double> to_beat);

// Returns the weights of the running trials, by number: kMinPromise + (1 - kMinPromise) * chance / mean chance, whose
// mean is 1. A trial that has not reported has the mean weight, and a trial whose last value is not finite has the
// minimum weight.
std::map<int, double> promise_weights(const Study& study, const std::vector<int>& running);

}  // namespace adaptdl::sched::tune
