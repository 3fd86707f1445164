// Time as measured by a device. On a GPU, it is the time between events in the GPU's stream, which are read once the
// GPU has reached them. On a CPU, it is the time of metrics::now().
//
// Threading: mark_time may be called by any thread.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "support/step_profile.h"
#include "support/torch_compat.h"

namespace adaptdl::internal {

// A point in time.
struct TimeMark {
  compat::EventPtr event;  // if null, `seconds` is used
  double seconds = 0;
};
TimeMark mark_time(at::Device device);

// Returns the time from one mark to a later one. On a CPU, it is known immediately.
Seconds seconds_between(const TimeMark& from, const TimeMark& to);

// Creates a timer that measures steps on the device.
std::unique_ptr<StepTimer> make_step_timer(at::Device device);

}  // namespace adaptdl::internal
