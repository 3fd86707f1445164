// Makes numbers from callers safe to sort by: NaN would break the strict weak ordering.
#pragma once

#include <cmath>
#include <limits>

namespace adaptdl::sched {

// Returns the number itself, or infinity for NaN, so that NaN sorts last.
inline double comparable(double number) {
  return std::isnan(number) ? std::numeric_limits<double>::infinity() : number;
}

}  // namespace adaptdl::sched
