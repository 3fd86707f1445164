#include "supervisor/router.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "adaptdl/error.h"
#include "adaptdl/sched_hints.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "base/socket.h"
#include "supervisor/kubeflow_report.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 8;                                 // nesting levels in a body; hints have two
constexpr double kDefaultTimeout = 30, kMaxTimeout = 300;      // seconds
constexpr std::size_t kMaxIdLength = 256;

struct BadRequest : Error {
  using Error::Error;
};

// Returns a query parameter, or `otherwise` if it is missing.
template <typename Number>
Number number(const Target& target, const std::string& name, Number otherwise) {
  const auto found = target.query.find(name);
  if (found == target.query.end()) return otherwise;
  const std::string& text = found->second;
  Number value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size())
    throw BadRequest(fmt::format("parameter '{}' must be a number", name));
  return value;
}

std::chrono::milliseconds timeout_of(const Target& target) {
  const double seconds = number(target, "timeout", kDefaultTimeout);
  if (std::isnan(seconds)) throw BadRequest("parameter 'timeout' must be a number of seconds");
  return std::chrono::milliseconds(std::llround(1000 * std::clamp(seconds, 0.0, kMaxTimeout)));
}

std::string replica_of(const Target& target) {
  const auto found = target.query.find("replica");
  if (found == target.query.end()) return "";
  const std::string& id = found->second;
  const bool fine = !id.empty() && id.size() <= kMaxIdLength &&
                    std::ranges::all_of(id, [](unsigned char c) { return std::isgraph(c) != 0; });
  if (!fine)
    throw BadRequest(fmt::format("parameter 'replica' must be an id of 1 to {} visible characters", kMaxIdLength));
  return id;
}

json parse_body(std::string_view body) {
  if (is_nested_deeper(body, kMaxNesting))
    throw BadRequest(fmt::format("the body is nested deeper than {} levels", kMaxNesting));
  try {
    return json::parse(body);
  } catch (const json::parse_error& error) {
    throw BadRequest(fmt::format("invalid JSON in the body, at byte {}", error.byte));
  } catch (const json::exception&) {
    throw BadRequest("the body contains a number that is too large");
  }
}

// AdaptDL's Python package sends 0 for an unknown count.
void take_zeros_for_unknown(json& hints) {
  if (!hints.is_object()) return;
  for (const char* name : {"initBatchSize", "maxBatchSize", "maxProfiledReplicas"}) {
    const auto found = hints.find(name);
    if (found != hints.end() && found->is_number() && *found == 0) *found = nullptr;
  }
}

std::string_view bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  return authorization.starts_with(kScheme) ? authorization.substr(kScheme.size()) : "";
}

}  // namespace

std::variant<Answer, Wait> Router::handle(const HttpRequest& request) const {
  const auto target = parse_target(request.target);
  if (!target) return Answer{400, "invalid target: expected a path, with two hexadecimal digits after each %", ""};
  const std::vector<std::string>& path = target->path;
  const bool healthz = path.size() == 1 && path[0] == "healthz";
  const bool hints = path.size() == 3 && path[0] == "hints";
  const bool discovers = path.size() == 4 && path[0] == "discover";
  const bool generations = path.size() == 3 && path[0] == "generation";
  const bool kubeflow = path.size() == 3 && path[0] == "kubeflow";
  const bool metrics = options_.metrics && path.size() == 1 && path[0] == "metrics";
  if (!healthz && !hints && !discovers && !generations && !kubeflow && !metrics)
    return Answer{404,
                  fmt::format("path not found; use {}/healthz, /discover, /generation, /hints or /kubeflow",
                              options_.metrics ? "/metrics, " : ""),
                  ""};
  const std::string allow = hints ? "PUT" : kubeflow ? "POST" : "GET";
  if (request.method != allow) return Answer{405, fmt::format("method not allowed; use {}", allow), allow};
  if (healthz) return Answer{200, R"({"healthy":true})", ""};
  if (metrics) return Answer{200, options_.metrics(), "", "text/plain; version=0.0.4; charset=utf-8"};

  const std::string job_id = path[1] + "/" + path[2];
  // A client that requests generations can cause members to be considered hung, so it needs a token. AdaptDL's Python
  // package, which sends no token, never requests generations, and Kubeflow's clients always send a token.
  const auto token_needed = [&] { return generations || kubeflow || needs_token(request); };
  if (const auto refused = board_.refusal(job_id, bearer(request.authorization), token_needed)) return *refused;
  try {
    if (hints) return put_hints(job_id, request.body);
    if (kubeflow) return post_progress(job_id, *target, request.body);
    if (generations) return next_generation(job_id, *target);
    if (bearer(request.authorization).empty()) listener_.foreign_discovers(job_id);
    return discover(job_id, *target);
  } catch (const Error& error) {
    return Answer{400, one_line(error.what()), ""};  // the message may quote the request
  }
}

bool Router::needs_token(const HttpRequest& request) const {
  if (options_.without_token != WithoutToken::kServedToOwner) return options_.without_token == WithoutToken::kRefused;
  // If a web page's host name resolves to this address (DNS rebinding), the browser sends that name in the Host header.
  const std::string_view host = request.host.substr(0, request.host.rfind(':'));
  if (!request.host.empty() && !net::is_loopback(host)) return true;
  const auto owner = client_owner(request.ends);
  return owner != ::geteuid() && owner != 0U;
}

Answer Router::put_hints(const std::string& job_id, std::string_view body) const {
  json hints = parse_body(body);
  take_zeros_for_unknown(hints);
  check_sched_hints(hints);
  if (board_.merge_hints(job_id, hints)) listener_.hints_changed(job_id);
  return {200, "{}", ""};
}

Answer Router::post_progress(const std::string& job_id, const Target& target, std::string_view body) const {
  const json report = kubeflow_report(parse_body(body));
  listener_.progress_reported(job_id, replica_of(target), report);
  if (board_.take_progress(job_id, report)) listener_.hints_changed(job_id);
  return {200, "{}", ""};
}

std::variant<Answer, Wait> Router::discover(const std::string& job_id, const Target& target) const {
  const std::string& text = target.path[3];
  int group = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), group);
  if (error != std::errc{} || rest != text.data() + text.size())
    throw BadRequest("the group, the last part of the path, must be a number");
  return answer_or_wait({Poll::Kind::kDiscover, job_id, group}, target);
}

std::variant<Answer, Wait> Router::next_generation(const std::string& job_id, const Target& target) const {
  const int after = number(target, "after", -1);
  const bool broken = number(target, "broken", 0) != 0;
  const std::string replica = replica_of(target);
  if (broken && replica.empty()) throw BadRequest("parameter 'broken' requires parameter 'replica'");
  if (!replica.empty()) {
    listener_.replica_waits(job_id, replica, after, broken);
  } else if (number(target, "trains", 0) != 0) {
    listener_.member_follows(job_id, after);
  }
  return answer_or_wait({Poll::Kind::kGeneration, job_id, after}, target);
}

std::variant<Answer, Wait> Router::answer_or_wait(Poll poll, const Target& target) const {
  const auto timeout = timeout_of(target);
  if (auto answer = board_.answer(poll)) return std::move(*answer);
  if (timeout.count() == 0) return ask_again();
  return Wait{std::move(poll), timeout};
}

}  // namespace adaptdl::sched
