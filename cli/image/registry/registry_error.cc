#include "image/registry/registry_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/foreign_json.h"
#include "base/printable.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

std::string line_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? one_line(found->get<std::string>(), 300) : "";
}

std::string log_in(const std::string& registry) {
  return fmt::format("`docker login {}` or `podman login {}`", registry, registry);
}

// Returns the remedy; empty if none is known.
std::string way_out(const RegistryError& error, const std::string& registry, const std::string& credentials) {
  switch (error.status()) {
    case 401:
    case 403:
      if (credentials.empty()) return fmt::format("log in with {}", log_in(registry));
      return error.status() == 401
                 ? fmt::format("the credentials from '{}' were rejected; log in again with {}", credentials,
                               log_in(registry))
                 : fmt::format("the credentials from '{}' do not allow the operation; log in as a user with access: {}",
                               credentials, log_in(registry));
    case 404:
      if (error.has_code("NAME_UNKNOWN")) return "check the name of the repository and your access to it";
      if (error.has_code("MANIFEST_UNKNOWN")) return "check the tag or digest";
      return "check the name, and whether the server is a registry";
    case 405:
      return "the registry does not allow the operation; is it a read-only mirror?";
    case 413:
      return "the request exceeds a size limit of the registry or a proxy in front of it";
    case 429:
      return credentials.empty() ? fmt::format("wait, or log in for a higher limit with {}", log_in(registry))
                                 : "wait a while and try again";
    default:
      return error.status() >= 500 ? "the registry failed; check its log and its free disk space" : "";
  }
}

std::string phrase(int status) {
  switch (status) {
    case 401:
      return "unauthorized";
    case 403:
      return "forbidden";
    case 404:
      return "not found";
    case 405:
      return "method not allowed";
    case 413:
      return "too large";
    case 429:
      return "too many requests";
    default:
      return fmt::format("HTTP {}", status);
  }
}

}  // namespace

bool RegistryError::has_code(std::string_view code) const {
  return std::find(codes_.begin(), codes_.end(), code) != codes_.end();
}

bool RegistryError::may_pass() const {
  if (std::string_view(what()).find("no space left on device") != std::string_view::npos) return false;
  return status_ == 408 || status_ == 429 || status_ == 500 || (status_ >= 502 && status_ <= 504);
}

Refusal parse_refusal(std::string_view body) {
  Refusal refusal;
  const json content = parse_foreign_json(body);
  if (!content.is_object()) return refusal;
  const auto errors = content.find("errors");
  if (errors == content.end() || !errors->is_array()) {
    // Token servers send a single error, not a list.
    for (const char* key : {"details", "message", "error_description", "error"})
      if (refusal.message.empty()) refusal.message = line_at(content, key);
    return refusal;
  }
  for (const json& each : *errors) {
    if (!each.is_object() || refusal.codes.size() == 3) continue;
    const std::string code = line_at(each, "code");
    std::string message = line_at(each, "message");
    // For the code UNKNOWN, only the detail states the cause.
    if (const std::string detail = line_at(each, "detail"); code == "UNKNOWN" && !detail.empty()) message = detail;
    refusal.codes.push_back(code);
    if (message.empty()) message = code;
    if (!message.empty()) refusal.message += (refusal.message.empty() ? "" : "; ") + message;
  }
  return refusal;
}

RegistryError refusal_error(const std::string& what, const std::string& registry, const http::Response& response,
                            const std::string& credentials) {
  Refusal refusal = parse_refusal(response.body);
  const RegistryError plain("", response.status, refusal.codes);
  const std::string out = way_out(plain, registry, credentials);
  const std::string message =
      fmt::format("{}: {}{}{}", what, refusal.message.empty() ? phrase(response.status) : refusal.message,
                  out.empty() ? "" : "; ", out);
  return {message, response.status, std::move(refusal.codes), response.retry_after};
}

}  // namespace adaptdl::image
