// The device-seconds of a run: how many devices it holds, integrated over time.
//
// A device is held from before the first process is started on it until other runs may have it: when the last process
// on it is gone, or at the end of the run if all of its replicas stop. A replica that needs no device counts as one.
//
// Threading: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace adaptdl::sched {

class DeviceTime {
 public:
  using Clock = std::chrono::steady_clock;

  // From `now` on the run holds these devices, by replica and in any order, and no others.
  void hold(const std::vector<std::string>& devices, Clock::time_point now);
  // So far, in device-seconds. REQUIRES that `now` is not before that of the last hold().
  double seconds(Clock::time_point now) const;

 private:
  std::size_t held_ = 0;
  double seconds_ = 0;  // until `since_`
  Clock::time_point since_{};
};

}  // namespace adaptdl::sched
