// The one wrapper of the optimiser (NLopt): a local minimum of a smooth function in a box.
#pragma once

#include <array>
#include <functional>

namespace adaptdl::goodput {

// Alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma, in the coordinates of the function.
using Point = std::array<double, 7>;

// The value at a point; its slope too, if asked for.
using Smooth = std::function<double(const Point& at, Point* slope)>;

struct Minimum {
  Point at{};
  double value = 0;
};

// Where L-BFGS gets from `start`. Coordinates whose bounds are equal stay. REQUIRES lower <= start <= upper.
Minimum minimize(const Smooth& function, const Point& start, const Point& lower, const Point& upper);

}  // namespace adaptdl::goodput
