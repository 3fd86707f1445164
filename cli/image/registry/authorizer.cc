#include "image/registry/authorizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "image/registry/registry_error.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;
using std::chrono::seconds;

// The token protocol's default lifetime for responses without expires_in.
constexpr seconds kLifetime{60};

std::string scope_text(const Scopes& scopes) { return fmt::format("{}", fmt::join(scopes, " ")); }

// Returns "repository:name" for "repository:name:pull".
std::string_view resource_of(std::string_view scope) { return scope.substr(0, scope.rfind(':')); }

std::string repository_of(const Scopes& scopes) {
  if (scopes.empty()) return "";
  const std::string_view resource = resource_of(scopes.front());
  return std::string(resource.substr(resource.find(':') + 1));
}

std::string basic(const Credentials& credentials) {
  return "Basic " + encode_base64(credentials.user + ":" + credentials.password);
}

// Returns the requested scopes, plus any others that the registry's challenge names.
Scopes all_scopes(const Challenge& challenge, Scopes scopes) {
  const std::string asked = challenge.parameter("scope");
  for (std::size_t at = 0; at < asked.size();) {
    const std::size_t end = std::min(asked.find(' ', at), asked.size());
    const std::string scope = asked.substr(at, end - at);
    const bool known = std::any_of(scopes.begin(), scopes.end(),
                                   [&](const std::string& each) { return resource_of(each) == resource_of(scope); });
    if (!scope.empty() && !known) scopes.push_back(scope);
    at = end + 1;
  }
  return scopes;
}

http::Request token_request(const Challenge& challenge, const Credentials& credentials, const Scopes& scopes) {
  http::Request request;
  request.url = challenge.parameter("realm");
  const std::string service = challenge.parameter("service");
  if (!credentials.identity_token.empty()) {
    request.method = "POST";
    request.headers = {"Content-Type: application/x-www-form-urlencoded"};
    request.body =
        fmt::format("grant_type=refresh_token&service={}&client_id=adaptdl&scope={}&refresh_token={}",
                    http::escape(service), http::escape(scope_text(scopes)), http::escape(credentials.identity_token));
    return request;
  }
  char separator = request.url.find('?') == std::string::npos ? '?' : '&';
  const auto add = [&](const char* name, const std::string& value) {
    request.url += fmt::format("{}{}={}", separator, name, http::escape(value));
    separator = '&';
  };
  if (!service.empty()) add("service", service);
  for (const std::string& scope : scopes) add("scope", scope);
  if (credentials.user.empty()) return request;
  add("account", credentials.user);
  request.headers = {"Authorization: " + basic(credentials)};
  return request;
}

}  // namespace

std::string repository_scope(const std::string& repository, std::string_view actions) {
  return fmt::format("repository:{}:{}", repository, actions);
}

std::optional<TokenAnswer> parse_token(const std::string& text) {
  const json answer = parse_foreign_json(text);
  if (!answer.is_object()) return {};
  std::string token;
  for (const char* key : {"token", "access_token"}) {
    const auto found = answer.find(key);
    if (token.empty() && found != answer.end() && found->is_string()) token = found->get<std::string>();
  }
  // The token is sent in a header, where only visible ASCII characters are allowed.
  const auto visible = [](unsigned char c) { return c > ' ' && c < 0x7f; };
  if (token.empty() || !std::all_of(token.begin(), token.end(), visible)) return {};
  const auto lifetime = answer.find("expires_in");
  if (lifetime == answer.end() || !lifetime->is_number_unsigned()) return TokenAnswer{token, kLifetime};
  return TokenAnswer{token, seconds(std::min<std::uint64_t>(lifetime->get<std::uint64_t>(), 86400))};
}

Credentials Authorizer::credentials(const Scopes& scopes, const std::stop_token& stop) {
  const std::string repository = repository_of(scopes);
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = credentials_.find(repository); found != credentials_.end()) return found->second;
  }
  Credentials found = context_.credentials(repository, stop);
  const std::scoped_lock lock(mutex_);
  return credentials_.emplace(repository, std::move(found)).first->second;
}

std::string Authorizer::source(const Scopes& scopes, const std::stop_token& stop) {
  return credentials(scopes, stop).source;
}

std::string Authorizer::header(const Scopes& scopes, const std::stop_token& stop) {
  std::optional<Challenge> challenge;
  {
    const std::scoped_lock lock(mutex_);
    challenge = challenge_;
    if (!challenge) return "";
    const auto token = tokens_.find(scope_text(scopes));
    if (challenge->scheme == "bearer" && token != tokens_.end() && token->second.expires > Clock::now())
      return "Bearer " + token->second.text;
  }
  const Credentials found = credentials(scopes, stop);
  if (challenge->scheme == "basic") return found.user.empty() ? "" : basic(found);
  if (!found.registry_token.empty()) return "Bearer " + found.registry_token;
  Token token = fetch(*challenge, found, all_scopes(*challenge, scopes), stop);
  std::string text = "Bearer " + token.text;
  const std::scoped_lock lock(mutex_);
  tokens_[scope_text(scopes)] = std::move(token);
  return text;
}

bool Authorizer::refused(const http::Response& response, const std::string& used, const Scopes& scopes) {
  const Challenge* chosen = nullptr;
  std::vector<Challenge> challenges;
  for (const auto& [name, value] : response.headers) {
    if (name != "www-authenticate") continue;
    for (Challenge& each : parse_challenges(value)) challenges.push_back(std::move(each));
  }
  for (const Challenge& each : challenges) {
    if (each.scheme == "bearer" && !each.parameter("realm").empty()) chosen = &each;
    if (each.scheme == "basic" && !chosen) chosen = &each;
  }
  if (!chosen) return false;
  const std::scoped_lock lock(mutex_);
  challenge_ = *chosen;
  tokens_.erase(scope_text(scopes));
  // The same user and password would be refused again, but a new token may be accepted.
  return used.empty() || (chosen->scheme == "bearer" && used.starts_with("Bearer "));
}

Authorizer::Token Authorizer::fetch(const Challenge& challenge, const Credentials& credentials, const Scopes& scopes,
                                    const std::stop_token& stop) {
  const std::string realm = challenge.parameter("realm");
  const std::string server = one_line(http::without_user(realm), 200);
  if (!realm.starts_with("https://") && !(realm.starts_with("http://") && context_.plain_http))
    throw Error(
        fmt::format("the registry '{}' names the token server '{}', which does not use HTTPS; no "
                    "credentials are sent to it",
                    context_.registry, server));
  const http::Response response = context_.send(token_request(challenge, credentials, scopes), stop);
  if (response.status / 100 != 2)
    throw refusal_error(fmt::format("the token server '{}' for '{}' refused the request", server, context_.registry),
                        context_.registry, response, credentials.source);
  const std::optional<TokenAnswer> answer = parse_token(response.body);
  if (!answer) throw Error(fmt::format("the token server '{}' for '{}' returned no token", server, context_.registry));
  // Tokens are replaced before they expire, so that a request in flight does not fail.
  return {answer->token, Clock::now() + answer->lifetime - std::min(seconds(10), answer->lifetime / 5)};
}

}  // namespace adaptdl::image
