// The two steps of posting hints: building the request, where errors are the caller's, and sending it, which is slow.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "http/http.h"

namespace adaptdl {

// Returns the request that posts these hints, or none without a supervisor. Throws UsageError as post_sched_hints does.
std::optional<http::Request> hints_request(const nlohmann::json& hints, const std::string& job_id);

// Sends the request; a requested stop ends this early, without an error. Returns the error as one line, or none.
std::optional<std::string> send_hints(const http::Request& request, std::stop_token stop = {}) noexcept;

}  // namespace adaptdl
