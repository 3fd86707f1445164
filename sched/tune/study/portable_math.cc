#include "tune/study/portable_math.h"

#include <array>
#include <cmath>
#include <limits>

namespace adaptdl::sched::tune::portable {
namespace {

// The logarithm of 2 in two parts; the product of the first part and any exponent is exact.
constexpr double kLog2High = 0x1.62e42fee00000p-1, kLog2Low = 0x1.a39ef35793c76p-33;
constexpr double kInverseLog2 = 0x1.71547652b82fep+0;
constexpr double kInverseRootTwoPi = 0.39894228040143267794;

// Returns coefficients[0] + coefficients[1] x + ...
template <std::size_t Count>
double polynomial(const std::array<double, Count>& coefficients, double x) {
  double sum = coefficients[Count - 1];
  for (std::size_t i = Count - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// Returns the cumulative distribution function for x <= 0, computed with the rational approximations by W. J. Cody,
// "Algorithm 715: SPECFUN", ACM Transactions on Mathematical Software 19, 1993, whose ANORM has these coefficients.
double lower_tail(double x) {
  static constexpr std::array<double, 5> a = {18154.981253343561249, 1067.6894854603709582, 161.02823106855587881,
                                              2.2352520354606839287, 0.065682337918207449113};
  static constexpr std::array<double, 5> b = {45507.789335026729956, 10260.932208618978205, 976.09855173777669322,
                                              47.20258190468824187, 1};
  static constexpr std::array<double, 9> c = {9842.7148383839780218, 11602.651437647350124,  6848.1904505362823326,
                                              2494.5375852903726711, 597.27027639480026226,  93.506656132177855979,
                                              8.8831497943883759412, 0.39894151208813466764, 1.0765576773720192317e-8};
  static constexpr std::array<double, 9> d = {19685.429676859990727, 38912.003286093271411, 34900.952721145977266,
                                              18615.571640885098091, 6485.558298266760755,  1519.377599407554805,
                                              235.38790178262499861, 22.266688044328115691, 1};
  static constexpr std::array<double, 6> p = {2.9112874951168792e-5, 0.001421619193227893466, 0.022235277870649807,
                                              0.1274011611602473639, 0.21589853405795699,     0.02307344176494017303};
  static constexpr std::array<double, 6> q = {7.29751555083966205e-5, 0.00378239633202758244, 0.0659881378689285515,
                                              0.468238212480865118,   1.28426009614491121,    1};
  const double y = -x, square = x * x;
  if (y <= 0.67448975) return 0.5 + x * (polynomial(a, square) / polynomial(b, square));
  if (y <= 5.656854249492381) return exp(-0.5 * square) * (polynomial(c, y) / polynomial(d, y));
  const double inverse = 1 / square;
  const double correction = inverse * (polynomial(p, inverse) / polynomial(q, inverse));
  return exp(-0.5 * square) * ((kInverseRootTwoPi - correction) / y);
}

// Returns the quantile for 0 < probability <= 1/2, computed with the function PPND16 by Michael J. Wichura, "Algorithm
// AS 241", Applied Statistics 37, 1988.
double lower_quantile(double probability) {
  static constexpr std::array<double, 8> a = {3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427,
                                              13731.693765509461125, 45921.953931549871457, 67265.770927008700853,
                                              33430.575583588128105, 2509.0809287301226727};
  static constexpr std::array<double, 8> b = {1,
                                              42.313330701600911252,
                                              687.18700749205790830,
                                              5394.1960214247511077,
                                              21213.794301586595867,
                                              39307.895800092710610,
                                              28729.085735721942674,
                                              5226.4952788528545610};
  static constexpr std::array<double, 8> c = {
      1.42343711074968357734, 4.63033784615654529590,  5.76949722146069140550,   3.64784832476320460504,
      1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4};
  static constexpr std::array<double, 8> d = {1,
                                              2.05319162663775882187,
                                              1.67638483018380384940,
                                              0.689767334985100004550,
                                              0.148103976427480074590,
                                              0.0151986665636164571966,
                                              5.47593808499534494600e-4,
                                              1.05075007164441684324e-9};
  static constexpr std::array<double, 8> e = {
      6.65790464350110377720,   5.46378491116411436990,    1.78482653991729133580,    0.296560571828504891230,
      0.0265321895265761230930, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr std::array<double, 8> f = {1,
                                              0.599832206555887937690,
                                              0.136929880922735805310,
                                              0.0148753612908506148525,
                                              7.86869131145613259100e-4,
                                              1.84631831751005468180e-5,
                                              1.42151175831644588870e-7,
                                              2.04426310338993978564e-15};
  const double centre = probability - 0.5;
  if (centre >= -0.425) {
    const double r = 0.180625 - centre * centre;
    return centre * (polynomial(a, r) / polynomial(b, r));
  }
  const double r = std::sqrt(-log(probability));
  if (r <= 5) return -polynomial(c, r - 1.6) / polynomial(d, r - 1.6);
  return -polynomial(e, r - 5) / polynomial(f, r - 5);
}

}  // namespace

// Splits off an integral power of 2, and evaluates the Taylor series at the remainder.
double exp(double x) {
  static constexpr std::array<double, 14> series = {
      1,          1,           1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
      1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  if (x < -708) return 0;
  if (x > 709.7) return std::numeric_limits<double>::infinity();
  const double power = std::floor(x * kInverseLog2 + 0.5);
  const double rest = (x - power * kLog2High) - power * kLog2Low;
  return std::ldexp(polynomial(series, rest), static_cast<int>(power));
}

// Evaluates the series of the inverse hyperbolic tangent for a fraction between the square roots of 1/2 and 2.
double log(double x) {
  static constexpr std::array<double, 12> series = {1,        1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                                    1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
  int exponent = 0;
  double fraction = std::frexp(x, &exponent);
  if (fraction < 0.70710678118654752) {
    fraction *= 2;
    --exponent;
  }
  const double ratio = (fraction - 1) / (fraction + 1);
  const double rest = 2 * ratio * polynomial(series, ratio * ratio);
  return exponent * kLog2High + (rest + exponent * kLog2Low);
}

double normal_cdf(double x) { return x <= 0 ? lower_tail(x) : 1 - lower_tail(-x); }

double normal_quantile(double probability) {
  if (probability <= 0) return -std::numeric_limits<double>::infinity();
  if (probability >= 1) return std::numeric_limits<double>::infinity();
  return probability <= 0.5 ? lower_quantile(probability) : -lower_quantile(1 - probability);
}

double normal_mass(double a, double b) {
  if (a > 0) return lower_tail(-a) - lower_tail(-b);
  return normal_cdf(b) - lower_tail(a);
}

}  // namespace adaptdl::sched::tune::portable
