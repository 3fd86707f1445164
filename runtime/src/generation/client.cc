#include "generation/client.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "http/http.h"
#include "protocol/supervisor_url.h"

namespace adaptdl::generation {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::seconds kSlack{15};  // extra time for the answer that there is no next generation
// In a cluster, the operator may first have to be restarted on another node.
constexpr std::chrono::minutes kMaxDisconnected{5};
constexpr std::chrono::milliseconds kRetryPause{100};
constexpr std::size_t kMaxBody = 1 << 20;

Generation parse(const std::string& url, const std::string& body) {
  try {
    return Generation::from_json(parse_foreign_json(body));
  } catch (const json::exception&) {
    throw Error(fmt::format("unexpected response from {}: not a generation: '{}'", url, supervisor::shown(body)));
  }
}

}  // namespace

std::optional<Generation> ask(const Question& question) {
  const std::string url =
      supervisor::job_url(env::supervisor_url().value_or(""), "generation", env::job_id().value_or(""));
  http::Request request;
  request.url = fmt::format("{}?after={}&timeout={}", url, question.after, question.timeout.count());
  if (!question.replica.empty()) request.url += "&replica=" + http::escape(question.replica);
  if (question.broken) request.url += "&broken=1";
  if (question.trains) request.url += "&trains=1";
  request.timeout = question.timeout + kSlack;
  request.max_body = kMaxBody;
  if (const auto token = env::supervisor_token()) request.headers.push_back("Authorization: Bearer " + *token);
  const http::Response response = http::send(request);
  if (response.status == 408) return {};
  if (response.status != 200)
    throw Error(
        fmt::format("{} returned HTTP status {}: '{}'", url, response.status, supervisor::shown(response.body)));
  return parse(url, response.body);
}

Generation ask_until_answered(Question question) {
  constexpr auto kConnected = Clock::time_point::max();
  auto disconnected = kConnected;  // when the supervisor became unreachable
  for (;;) {
    const auto asked = Clock::now();
    try {
      if (const auto next = ask(question)) return *next;
      disconnected = kConnected;
    } catch (const http::ConnectionError& error) {
      disconnected = std::min(disconnected, asked);
      if (Clock::now() - disconnected >= kMaxDisconnected)
        throw Error(
            fmt::format("the supervisor has been unreachable for {} min: {}", kMaxDisconnected.count(), error.what()));
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

}  // namespace adaptdl::generation
