// DeviceTime counts the device-seconds of a run: the number of devices that it holds, integrated over time.
//
// A device is held from before the first process is started on it until other runs may have it: when the last process
// on it is gone, or at the end of the run if all of its replicas stop. A replica without a device counts as one.
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

  // From `now` on, the run holds these devices and no others. There is one name per replica, in any order.
  void hold(const std::vector<std::string>& devices, Clock::time_point now);
  // Returns the device-seconds so far. REQUIRES that `now` is not before that of the last hold().
  double seconds(Clock::time_point now) const;

 private:
  std::size_t held_ = 0;
  double seconds_ = 0;  // until `since_`
  Clock::time_point since_{};
};

}  // namespace adaptdl::sched
