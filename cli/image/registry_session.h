// Requests to one registry: how it is reached, whom to trust, and as whom to come.
//
// Threading: may be used from any thread at once. Lifetime: the options outlive it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "http/http.h"
#include "image/authorizer.h"
#include "image/registry_error.h"
#include "image/registry_options.h"

namespace adaptdl::image {

class Session {
 public:
  // `host` is host[:port], as in a reference; with "http://" before it, it is reached so.
  Session(std::string host, const RegistryOptions& options);

  const std::string& host() const { return host_; }
  // "https://host[:port]", or http. Asks which it is, where both may be.
  std::string base(const std::stop_token& stop);

  // Sends a request, if need be once more as who may make it. `rewind` is called before each sending. No answer but 401
  // leads to another try. Throws http::Stopped at a stop.
  http::Response send(http::Request request, const Scopes& scopes, const std::stop_token& stop,
                      const std::function<void()>& rewind = {});
  // The same for an answer with a body for `sink`; redirects are followed, to other hosts without credentials.
  http::Response stream(http::Request request, const Scopes& scopes, const std::stop_token& stop,
                        const std::function<bool(std::string_view)>& sink,
                        const std::function<void(const http::Response&)>& begin);

  // An answer that is no success, as an error.
  RegistryError error(const std::string& what, const http::Response& response, const Scopes& scopes,
                      const std::stop_token& stop);
  // A URL of a header Location, which may be a path alone, made whole.
  std::string resolve(const std::string& location, const std::string& base) const;

 private:
  http::Response authorized(http::Request& request, const Scopes& scopes, const std::stop_token& stop,
                            const std::function<http::Response(const http::Request&)>& exchange);
  // With what is needed to reach the host of its URL.
  void prepare(http::Request& request) const;
  bool speaks_tls(const std::stop_token& stop);

  const RegistryOptions& options_;
  std::string host_;
  bool plain_told_ = false;
  http::Connections connections_;
  std::unique_ptr<Authorizer> authorizer_;
  std::mutex mutex_;
  std::string base_;
};

}  // namespace adaptdl::image
