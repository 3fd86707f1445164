// BackOff computes how long to wait after each of several failures before anything is started again.
#pragma once

#include <chrono>

namespace adaptdl::sched {

struct BackOff {
  using Time = std::chrono::steady_clock::time_point;

  std::chrono::milliseconds pause{0};  // after the last failure; 0 if there was none
  Time failed_at{};

  // Records a failure at `now` and returns the pause after it: kFirstBackOff, which doubles with each further failure
  // up to kLongestBackOff, and kFirstBackOff again after kBackOffMemory without any.
  std::chrono::milliseconds next(Time now);
};

}  // namespace adaptdl::sched
