#include "support/device_time.h"

#include "adaptdl/metrics.h"

namespace adaptdl::internal {

namespace {

class DeviceTimer final : public StepTimer {
 public:
  explicit DeviceTimer(at::Device device) : device_(device) {}
  void begin() override { begin_ = mark_time(device_); }
  Seconds end() override { return seconds_between(begin_, mark_time(device_)); }

 private:
  at::Device device_;
  TimeMark begin_;
};

}  // namespace

TimeMark mark_time(at::Device device) { return {compat::record_event(device), metrics::now()}; }

Seconds seconds_between(const TimeMark& from, const TimeMark& to) {
  if (from.event && to.event)
    return [from = from.event, to = to.event] { return compat::seconds_between(*from, *to); };
  return [seconds = to.seconds - from.seconds] { return std::optional<double>(seconds); };
}

std::unique_ptr<StepTimer> make_step_timer(at::Device device) { return std::make_unique<DeviceTimer>(device); }

}  // namespace adaptdl::internal
