// How long to wait after each of several failures before anything is started again.
#pragma once

#include <chrono>

namespace adaptdl::sched {

struct BackOff {
  using Time = std::chrono::steady_clock::time_point;

  std::chrono::milliseconds pause{0};  // after the last failure; 0: there was none
  Time failed_at{};

  // Returns the pause after a failure now: kFirstBackOff, twice as long after each further one up to kLongestBackOff,
  // and the first again after kBackOffMemory without any.
  std::chrono::milliseconds next(Time now);
};

}  // namespace adaptdl::sched
