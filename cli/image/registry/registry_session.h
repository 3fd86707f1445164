// Sends requests to one registry, with its URL, trusted certificates and credentials.
//
// Threading: several threads may use a session at once. Lifetime: the options must outlive the session.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "http/http.h"
#include "image/registry/authorizer.h"
#include "image/registry/registry_error.h"
#include "image/registry/registry_options.h"

namespace adaptdl::image {

class Session {
 public:
  // `host` is host[:port], as in a reference; if it begins with "http://", requests do not use TLS.
  Session(std::string host, const RegistryOptions& options);

  const std::string& host() const { return host_; }
  // Returns "https://host[:port]" or "http://host[:port]". Probes the host if both are possible.
  std::string base(const std::stop_token& stop);

  // Sends a request, and repeats it with credentials if they are required. `rewind` is called before each attempt. Only
  // status 401 leads to another attempt. Throws http::Stopped after a stop request.
  http::Response send(http::Request request, const Scopes& scopes, const std::stop_token& stop,
                      const std::function<void()>& rewind = {});
  // Like send(), but passes the response's body to `sink`, and follows redirects; other hosts receive no credentials.
  http::Response stream(http::Request request, const Scopes& scopes, const std::stop_token& stop,
                        const std::function<bool(std::string_view)>& sink,
                        const std::function<void(const http::Response&)>& begin);

  // Returns the error for an unsuccessful response.
  RegistryError error(const std::string& what, const http::Response& response, const Scopes& scopes,
                      const std::stop_token& stop);
  // Returns the absolute URL for a Location header, which may be only a path.
  std::string resolve(const std::string& location, const std::string& base) const;

 private:
  http::Response authorized(http::Request& request, const Scopes& scopes, const std::stop_token& stop,
                            const std::function<http::Response(const http::Request&)>& exchange);
  // Sets the proxy, and the certificates for the URL's host.
  void prepare(http::Request& request) const;
  bool speaks_tls(const std::stop_token& stop);

  const RegistryOptions& options_;
  std::string host_;
  bool plain_http_ = false;
  http::Connections connections_;
  std::unique_ptr<Authorizer> authorizer_;
  std::mutex mutex_;
  std::string base_;
};

}  // namespace adaptdl::image
