// How long replicas wait for each other when they connect.
#pragma once

#include <chrono>

namespace adaptdl::internal {

// Tests shorten these timeouts.

// The timeout for connected replicas to form their process group. If a replica dies in this phase, the others may not
// notice before the timeout.
inline std::chrono::milliseconds form_timeout = std::chrono::seconds(30);
// How long a replica continues to wait for the others after a request to stop.
inline std::chrono::milliseconds connect_grace = std::chrono::seconds(10);

}  // namespace adaptdl::internal
