#include "adaptdl/sched_hints.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "adaptdl/env.h"
#include "adaptdl/log.h"
#include "protocol/hints_request.h"
#include "protocol/supervisor_url.h"

namespace adaptdl {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kConnectTimeout{5};
constexpr std::chrono::seconds kTimeout{10};
constexpr std::size_t kMaxAnswer = 1 << 16;

}  // namespace

std::optional<http::Request> hints_request(const json& hints, const std::string& job_id) {
  check_sched_hints(hints);
  const auto url = env::supervisor_url();
  if (!url) return {};
  http::Request request;
  request.method = "PUT";
  request.url = supervisor::job_url(*url, "hints", job_id);
  request.headers.push_back("Content-Type: application/json");
  if (const auto token = env::supervisor_token()) request.headers.push_back("Authorization: Bearer " + *token);
  request.body = hints.dump(-1, ' ', false, json::error_handler_t::replace);
  request.connect_timeout = kConnectTimeout;
  request.timeout = kTimeout;
  request.max_body = kMaxAnswer;
  return request;
}

std::optional<std::string> send_hints(const http::Request& request, std::stop_token stop) noexcept {
  try {
    const http::Response response = http::Connections().send(request, std::move(stop));
    if (response.status == 0 || response.status / 100 == 2) return {};
    return fmt::format("{} {} returned HTTP status {}: '{}'", request.method, request.url, response.status,
                       supervisor::shown(response.body));
  } catch (const std::exception& error) {
    return error.what();
  }
}

void post_sched_hints(const json& hints, const std::string& job_id) {
  const auto request = hints_request(hints, job_id);
  if (!request) return;
  if (const auto problem = send_hints(*request)) log::warn("scheduling hints were not posted: " + *problem);
}

}  // namespace adaptdl
