#include "adaptdl/sched_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "hints_request.h"
#include "supervisor_url.h"

namespace adaptdl {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kConnectTimeout{5};
constexpr std::chrono::seconds kTimeout{10};
constexpr std::size_t kMaxAnswer = 1 << 16;

constexpr std::array<std::string_view, 10> kHints{
    "initBatchSize",        "localBszBounds", "globalBatchSize", "maxBatchSize", "maxProfiledReplicas",
    "gradientAccumulation", "gradParams",     "perfParams",      "progress",     "targetProgress"};
constexpr std::array<std::string_view, 2> kGradParams{"norm", "var"};
constexpr std::array<std::string_view, 7> kPerfParams{"alpha_c", "beta_c", "alpha_n", "beta_n",
                                                      "alpha_r", "beta_r", "gamma"};

void check_keys(const json& object, const std::string& prefix, std::span<const std::string_view> known) {
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw UsageError(fmt::format("no scheduling hint is named \"{}{}\": takes {}", prefix, key,
                                   fmt::join(known.begin(), known.end(), ", ")));
}

void check(const json& hints) {
  if (!hints.is_object()) throw UsageError(fmt::format("scheduling hints: takes an object, not {}", hints.type_name()));
  check_keys(hints, "", kHints);
  const auto check_part = [&](const char* name, std::span<const std::string_view> known) {
    const auto part = hints.find(name);
    if (part == hints.end() || part->is_null()) return;
    if (!part->is_object())
      throw UsageError(fmt::format("scheduling hint \"{}\": takes an object or null, not {}", name, part->type_name()));
    check_keys(*part, fmt::format("{}.", name), known);
  };
  check_part("gradParams", kGradParams);
  check_part("perfParams", kPerfParams);
}

}  // namespace

std::optional<http::Request> hints_request(const json& hints, const std::string& job_id) {
  check(hints);
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

std::optional<std::string> send_hints(const http::Request& request) noexcept {
  try {
    const http::Response response = http::send(request);
    if (response.status / 100 == 2) return {};
    return fmt::format("{} {} answers {}: \"{}\"", request.method, request.url, response.status,
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
