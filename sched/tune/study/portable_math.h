// Functions whose results are the same to the last bit on every processor with IEEE arithmetic. The C library's
// functions do not guarantee that, because the library selects one of several versions of each function according to
// the processor's features. Samplers use the functions below instead, so that a study with a seed is reproducible
// anywhere. The compiler must not fuse multiplications with additions.
//
// Relative errors are below 1e-15; for probabilities, they are below 1e-14, or 1e-12 in the far tail.
#pragma once

namespace adaptdl::sched::tune::portable {

double exp(double x);  // 0 if the result would be denormal
double log(double x);  // REQUIRES x > 0 and finite

// The cumulative distribution function of the standard normal distribution, and its inverse.
double normal_cdf(double x);
double normal_quantile(double probability);  // infinite at 0 and 1

// Returns the probability that a standard normal value is between a and b. The result is as accurate in the upper tail
// as in the lower one. REQUIRES a <= b.
double normal_mass(double a, double b);

}  // namespace adaptdl::sched::tune::portable
