// How long replicas that are all there may take to connect their process group. One that dies meanwhile may not be
// noticed before.
#pragma once

#include <chrono>

namespace adaptdl::torch::internal {

// Tests shorten it.
inline std::chrono::milliseconds form_timeout = std::chrono::seconds(30);

}  // namespace adaptdl::torch::internal
