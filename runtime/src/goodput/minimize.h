// The only wrapper around the optimizer (NLopt), which finds a local minimum of a smooth function in a box.
#pragma once

#include <array>
#include <functional>

namespace adaptdl::goodput {

// The parameters alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma, in the function's coordinates.
using Point = std::array<double, 7>;

// Returns the value at a point, and sets the slope unless `slope` is null.
using Smooth = std::function<double(const Point& at, Point* slope)>;

struct Minimum {
  Point at{};
  double value = 0;
};

// Minimizes with L-BFGS from `start`. Coordinates with equal bounds stay fixed. REQUIRES lower <= start <= upper.
Minimum minimize(const Smooth& function, const Point& start, const Point& lower, const Point& upper);

}  // namespace adaptdl::goodput
