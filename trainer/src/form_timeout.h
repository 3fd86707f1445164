// How long replicas wait for each other when they connect.
#pragma once

#include <chrono>

namespace adaptdl::internal {

// Tests shorten these.

// Replicas that are all there, for their process group. One that dies meanwhile may not be noticed before.
inline std::chrono::milliseconds form_timeout = std::chrono::seconds(30);
// After a request to stop.
inline std::chrono::milliseconds connect_grace = std::chrono::seconds(10);

}  // namespace adaptdl::internal
