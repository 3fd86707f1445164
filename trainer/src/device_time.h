// Time as a device sees it: on a GPU between events in its stream, read when they have passed; on a CPU the clock of
// metrics.h.
//
// Threading: marks may be made in any thread.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "step_profile.h"
#include "torch_compat.h"

namespace adaptdl::internal {

// A point in time.
struct TimeMark {
  compat::EventPtr event;  // null: on the clock
  double seconds = 0;
};
TimeMark mark_time(at::Device device);

// From one mark to a later one; known at once on a CPU.
Seconds seconds_between(const TimeMark& from, const TimeMark& to);

// Measures steps on the device.
std::unique_ptr<StepTimer> make_step_timer(at::Device device);

}  // namespace adaptdl::internal
