#include "membership/back_off.h"

#include <algorithm>

#include "membership/membership_limits.h"

namespace adaptdl::sched {

std::chrono::milliseconds BackOff::next(Time now) {
  const bool forgotten = pause.count() == 0 || now - failed_at >= kBackOffMemory;
  pause = forgotten ? kFirstBackOff : std::min(pause * 2, kMaxBackOff);
  failed_at = now;
  return pause;
}

}  // namespace adaptdl::sched
