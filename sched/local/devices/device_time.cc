#include "local/devices/device_time.h"

#include <algorithm>
#include <set>

namespace adaptdl::sched {

void DeviceTime::hold(const std::vector<std::string>& devices, Clock::time_point now) {
  seconds_ = seconds(now);
  since_ = now;
  // Several replicas may share a device.
  std::set<std::string> different(devices.begin(), devices.end());
  different.erase("");
  held_ = different.size() + static_cast<std::size_t>(std::ranges::count(devices, ""));
}

double DeviceTime::seconds(Clock::time_point now) const {
  return seconds_ + static_cast<double>(held_) * std::chrono::duration<double>(now - since_).count();
}

}  // namespace adaptdl::sched
