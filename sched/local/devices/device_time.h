// DeviceTime counts the device-seconds of a run: the number of devices that it holds, integrated over time.
//
// A device is held from before the first process is started on it until other runs may use it: when the last process on
// it has ended or, if all replicas stop, at the end of the run. A replica without a device counts as one device.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace adaptdl::sched {

class DeviceTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Records that the run holds exactly these devices from `now` on. The list contains one name per replica, in any
  // order.
  void hold(const std::vector<std::string>& devices, Clock::time_point now);
  // Returns the device-seconds so far. REQUIRES that `now` is not earlier than in the last call to hold().
  double seconds(Clock::time_point now) const;

 private:
  std::size_t held_ = 0;
  double seconds_ = 0;  // until `since_`
  Clock::time_point since_{};
};

}  // namespace adaptdl::sched
