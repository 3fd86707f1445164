// What a registry is shown so that it lets a request pass: a token of its token server, or user and password.
//
// Threading: may be used from any thread at once. Lifetime: the connections outlive it. Secrets are in no message.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "http/http.h"
#include "image/auth_file.h"
#include "image/challenge.h"

namespace adaptdl::image {

// What a request wants to do: "repository:library/busybox:pull". The first names the repository that the credentials
// are for.
using Scopes = std::vector<std::string>;

std::string repository_scope(const std::string& repository, std::string_view actions);

class Authorizer {
 public:
  struct Context {
    std::string registry;     // for messages
    bool plain_http = false;  // the registry itself is reached without TLS
    std::function<Credentials(const std::string& repository, const std::stop_token&)> credentials;
    // Sends to a token server, with what it takes to trust it.
    std::function<http::Response(http::Request, const std::stop_token&)> send;
  };
  explicit Authorizer(Context context) : context_(std::move(context)) {}

  // The value of the header Authorization; empty as long as the registry has asked for nothing. May ask the token
  // server. Throws as that fails.
  std::string header(const Scopes& scopes, const std::stop_token& stop);
  // Takes note of an answer of 401 to a request with the header `used`. Returns whether another header may pass.
  bool refused(const http::Response& response, const std::string& used, const Scopes& scopes);
  // Where the credentials for these scopes are from, for messages; empty: there are none.
  std::string source(const Scopes& scopes, const std::stop_token& stop);

 private:
  using Clock = std::chrono::steady_clock;
  struct Token {
    std::string text;
    Clock::time_point expires;
  };

  Credentials credentials(const Scopes& scopes, const std::stop_token& stop);
  Token fetch(const Challenge& challenge, const Credentials& credentials, const Scopes& scopes,
              const std::stop_token& stop);

  const Context context_;
  std::mutex mutex_;
  std::optional<Challenge> challenge_;
  std::map<std::string, Credentials> credentials_;  // by repository
  std::map<std::string, Token> tokens_;             // by scopes
};

// What a token server's answer holds, and for how long; null if it holds none.
struct TokenAnswer {
  std::string token;
  std::chrono::seconds lifetime;
};
std::optional<TokenAnswer> parse_token(const std::string& text);

}  // namespace adaptdl::image
