// Reads a job's output through the job server's WebSocket while the job is running.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "ray/access.h"

namespace adaptdl::ray {

// Passes the output from its beginning to `sink` until the job has ended, `sink` returns false, or a stop is requested.
// Reconnects if the connection breaks; `sink` never receives a byte twice. Throws Error if the server cannot be reached
// for 30 s or refuses the request.
void follow_logs(const Access& access, const std::string& id, const std::stop_token& stop,
                 const std::function<bool(std::string_view)>& sink);

}  // namespace adaptdl::ray
