// Time as measured by a device. On a GPU it is the time between events in its stream, which are read once they have
// passed; on a CPU it is the clock of metrics.h.
//
// Threading: mark_time may be called by any thread.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "step_profile.h"
#include "torch_compat.h"

namespace adaptdl::internal {

// A point in time.
struct TimeMark {
  compat::EventPtr event;  // null: `seconds` counts
  double seconds = 0;
};
TimeMark mark_time(at::Device device);

// The time from one mark to a later one; known immediately on a CPU.
Seconds seconds_between(const TimeMark& from, const TimeMark& to);

// A timer that measures steps on the device.
std::unique_ptr<StepTimer> make_step_timer(at::Device device);

}  // namespace adaptdl::internal
