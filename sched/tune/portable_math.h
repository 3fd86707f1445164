// Functions that are the same to the last bit on every processor with IEEE arithmetic, which those of the C library are
// not: it has several versions of each, by what the processor can do. Samplers use them, so that a study with a seed
// is repeatable anywhere. They rely on a build in which the compiler fuses no multiplication with an addition.
//
// Relative errors are below 1e-15, and those of probabilities below 1e-14, or 1e-12 in the far tail.
#pragma once

namespace adaptdl::sched::tune::portable {

double exp(double x);  // 0 where the result would be denormal
double log(double x);  // REQUIRES x > 0 and finite

// The standard normal distribution: the probability of less than x, and its inverse.
double normal_cdf(double x);
double normal_quantile(double probability);  // infinite at 0 and 1

// The probability between a and b, a <= b; as exact in the upper tail as in the lower one.
double normal_mass(double a, double b);

}  // namespace adaptdl::sched::tune::portable
