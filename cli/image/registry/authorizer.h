// Obtains the Authorization header for requests to a registry: a token from its token server, or user and password.
//
// Threading: all methods may be called concurrently from any thread. Lifetime: the callbacks in Context must outlive
// the object. Secrets never appear in messages.
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
#include "image/registry/auth_file.h"
#include "image/registry/challenge.h"

namespace adaptdl::image {

// The actions that a request performs, such as "repository:library/busybox:pull". The first scope names the repository
// whose credentials are used.
using Scopes = std::vector<std::string>;

std::string repository_scope(const std::string& repository, std::string_view actions);

class Authorizer {
 public:
  struct Context {
    std::string registry;     // for messages
    bool plain_http = false;  // whether the registry itself is contacted without TLS
    std::function<Credentials(const std::string& repository, const std::stop_token&)> credentials;
    // Sends a request to a token server, using the CA certificates required to verify it.
    std::function<http::Response(http::Request, const std::stop_token&)> send;
  };
  explicit Authorizer(Context context) : context_(std::move(context)) {}

  // Returns the Authorization header's value; empty until the registry has sent a challenge. May send a request to the
  // token server, and throws if that request fails.
  std::string header(const Scopes& scopes, const std::stop_token& stop);
  // Records a 401 response to a request whose Authorization header was `used`. Returns whether a retry with a new
  // header may succeed.
  bool refused(const http::Response& response, const std::string& used, const Scopes& scopes);
  // Returns where the credentials for these scopes come from, for messages; empty if there are none.
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
  std::map<std::string, Credentials> credentials_;  // keyed by repository
  std::map<std::string, Token> tokens_;             // keyed by scopes
};

// A token from a token server's response, and its lifetime. parse_token() returns nullopt if the response contains no
// token.
struct TokenAnswer {
  std::string token;
  std::chrono::seconds lifetime;
};
std::optional<TokenAnswer> parse_token(const std::string& text);

}  // namespace adaptdl::image
