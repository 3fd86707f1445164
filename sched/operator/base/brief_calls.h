// Defines the options for API calls from operator threads that must not block for long.
#pragma once

#include <chrono>

#include "kube/api/client.h"

namespace adaptdl::sched {

// A call fails after a few seconds and is not retried.
inline constexpr kube::Client::Options kBriefCalls{.connect_timeout = std::chrono::seconds(2),
                                                   .timeout = std::chrono::seconds(6),
                                                   .patience = std::chrono::milliseconds(0)};

}  // namespace adaptdl::sched
