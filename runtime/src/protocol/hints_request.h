// The two steps of posting hints: building the request, which reports the caller's mistakes, and sending it, which is
// slow.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "http/http.h"

namespace adaptdl {

// Returns the request that posts these hints, or nullopt if there is no supervisor. Throws UsageError under the same
// conditions as post_sched_hints.
std::optional<http::Request> hints_request(const nlohmann::json& hints, const std::string& job_id);

// Sends the request. A requested stop ends the transfer early and is not an error. Returns the error as one line, or
// nullopt if there was none.
std::optional<std::string> send_hints(const http::Request& request, std::stop_token stop = {}) noexcept;

}  // namespace adaptdl
