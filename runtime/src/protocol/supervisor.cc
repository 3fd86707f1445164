#include "adaptdl/supervisor.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "base/foreign_json.h"
#include "http/http.h"
#include "protocol/supervisor_url.h"

namespace adaptdl::supervisor {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::seconds kPoll{30};       // the supervisor holds a request for this long, then answers 408
constexpr std::chrono::seconds kPollSlack{15};  // additional time for that answer
// In a cluster, the operator answers these requests; it may first have to be restarted on another node.
constexpr std::chrono::minutes kMaxDisconnected{5};
constexpr std::chrono::milliseconds kPause{200};  // before the next attempt
constexpr std::size_t kMaxBody = 1 << 20;

std::vector<std::string> parse_addresses(const std::string& url, const std::string& body) {
  const json parsed = parse_foreign_json(body);
  const bool well_formed =
      parsed.is_array() && !parsed.empty() && std::all_of(parsed.begin(), parsed.end(), [](const json& each) {
        return each.is_string() && !each.get_ref<const std::string&>().empty();
      });
  if (!well_formed)
    throw Error(fmt::format("unexpected response from {}: not a list of addresses: '{}'", url, shown(body)));
  return parsed.get<std::vector<std::string>>();
}

}  // namespace

std::vector<std::string> discover(const std::string& url, const std::string& job_id, int group,
                                  std::chrono::milliseconds timeout) {
  const std::string target = fmt::format("{}/{}", job_url(url, "discover", job_id), group);
  const auto deadline = Clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
  http::Request request;
  request.max_body = kMaxBody;
  if (const auto token = env::supervisor_token()) request.headers.push_back("Authorization: Bearer " + *token);
  constexpr auto kConnected = Clock::time_point::max();
  auto disconnected = kConnected;  // when connections began to fail
  std::string last;                // why the last attempt did not succeed
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0)
      throw Error(fmt::format("{}: not all replicas were found within {:g}s: {}", target,
                              std::chrono::duration<double>(timeout).count(),
                              last.empty() ? "it did not answer in time" : last));
    const auto poll = std::clamp(std::chrono::ceil<std::chrono::seconds>(left), std::chrono::seconds(1), kPoll);
    request.url = fmt::format("{}?timeout={}", target, poll.count());
    request.timeout = std::min<std::chrono::milliseconds>(left, poll + kPollSlack);
    const auto started = Clock::now();
    try {
      const http::Response response = http::send(request);
      if (response.status == 200) return parse_addresses(target, response.body);
      if (response.status != 408)
        throw Error(fmt::format("{} returned HTTP status {}: '{}'", target, response.status, shown(response.body)));
      last = "some are not running yet";
      disconnected = kConnected;
    } catch (const http::ConnectionError& error) {
      if (disconnected == kConnected) {
        disconnected = started;
        log::warn(fmt::format("the supervisor is unreachable; retrying for {} min: {}", kMaxDisconnected.count(),
                              error.what()));
      }
      if (Clock::now() - disconnected >= kMaxDisconnected)
        throw Error(
            fmt::format("the supervisor has been unreachable for {} min: {}", kMaxDisconnected.count(), error.what()));
      // If the deadline cut this attempt short, the previous attempt's failure is more informative.
      if (last.empty() || Clock::now() < deadline) last = error.what();
    }
    std::this_thread::sleep_for(
        std::min<Clock::duration>(kPause, std::max(deadline - Clock::now(), Clock::duration::zero())));
  }
}

}  // namespace adaptdl::supervisor
