// Times and amounts that callers give may be no numbers, and then orders by them would be none.
#pragma once

#include <cmath>
#include <limits>

namespace adaptdl::sched {

// The number itself; what is none comes last.
inline double comparable(double number) {
  return std::isnan(number) ? std::numeric_limits<double>::infinity() : number;
}

}  // namespace adaptdl::sched
