// BackOff computes how long to wait after a failure before anything is started again.
#pragma once

#include <chrono>

namespace adaptdl::sched {

struct BackOff {
  using Time = std::chrono::steady_clock::time_point;

  std::chrono::milliseconds pause{0};  // after the last failure; 0 if there was none
  Time failed_at{};

  // Records a failure at `now` and returns the pause after it. The first pause is kFirstBackOff. The pause doubles with
  // each further failure, up to kMaxBackOff, and is kFirstBackOff again after kBackOffMemory without a failure.
  std::chrono::milliseconds next(Time now);
};

}  // namespace adaptdl::sched
