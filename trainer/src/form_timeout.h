// How long replicas wait for each other when they connect.
#pragma once

#include <chrono>

namespace adaptdl::internal {

// Tests shorten these timeouts.

// The timeout of connected replicas for forming their process group. A death meanwhile may be noticed only at its end.
inline std::chrono::milliseconds form_timeout = std::chrono::seconds(30);
// How long a replica still waits for the others after a request to stop.
inline std::chrono::milliseconds connect_grace = std::chrono::seconds(10);

}  // namespace adaptdl::internal
