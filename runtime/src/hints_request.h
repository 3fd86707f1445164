// The two halves of posting hints: what needs the environment and can be the caller's fault, and what takes time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "http/http.h"

namespace adaptdl {

// The request that posts these hints; none if there is no supervisor. Throws UsageError as post_sched_hints does.
std::optional<http::Request> hints_request(const nlohmann::json& hints, const std::string& job_id);

// Sends it, until a stop is asked for. Returns what went wrong, as one line; none if nothing did. Throws nothing.
std::optional<std::string> send_hints(const http::Request& request, std::stop_token stop = {}) noexcept;

}  // namespace adaptdl
