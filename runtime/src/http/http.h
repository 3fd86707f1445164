// The only wrapper around libcurl: HTTP(S) requests with limits on their time and size.
//
// Threading: all functions may be called concurrently from any thread. Lifetime: `send` keeps nothing between calls;
// `Connections` keeps connections open and must outlive the calls on it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::http {

// The certificates to trust and to present. Never printed.
struct Tls {
  std::string authority;            // PEM certificates to trust instead of the system's; empty: the system's
  bool system_authorities = false;  // trusts the system's certificates in addition to `authority`
  std::string certificate, key;     // PEM; empty: none
  std::string server_name;          // required name in the server's certificate; empty: the URL's host
  bool insecure = false;            // accepts any certificate
};

// The call rethrows exceptions from `read_body`. If `read_body` supplies fewer bytes than `read_size`, the connection
// fails.
struct Request {
  std::string method = "GET";
  std::string url;                   // http or https; other schemes are refused
  std::vector<std::string> headers;  // "Name: value"
  std::string body;                  // sent if it is not empty or if the method is PUT, POST or PATCH
  std::function<std::size_t(char*, std::size_t)> read_body;  // if set, supplies the body in pieces, instead of `body`
  std::uint64_t read_size = 0;                               // bytes that `read_body` supplies in total
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // for the whole call, up to the last byte; 0: no limit
  std::chrono::seconds stall{0};                 // a connection without any transfer for this long fails; 0: no limit
  std::size_t max_body = std::size_t{16} << 20;  // max bytes in the response; a larger one is an error
  bool compressed = false;                       // lets the server compress its response
  std::shared_ptr<const Tls> tls;                // null: the defaults
  // The URL of an http, https or socks5 proxy (a socks5 proxy resolves names). If empty, the environment selects the
  // proxy, and connections to this machine do not use a proxy.
  std::string proxy;
};

struct Response {
  int status = 0;  // 0: a stop was requested before the response began
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::optional<std::chrono::seconds> retry_after;
  // Returns the first header of that name (in lower case), or an empty string.
  std::string_view header(std::string_view name) const;
};

// No complete response arrived: the server cannot be reached, or the connection broke. A retry may help. If a retry
// cannot help, for example because the URL is malformed or the response is too large, a plain Error is thrown.
class ConnectionError : public Error {
 public:
  explicit ConnectionError(const std::string& message) : ConnectionError(message, message, true) {}
  ConnectionError(const std::string& message, std::string reason, bool sent)
      : Error(message), reason_(std::move(reason)), sent_(sent) {}
  const std::string& reason() const { return reason_; }  // without method or URL: "connection refused"
  bool sent() const { return sent_; }                    // whether the server may have received the request

 private:
  std::string reason_;
  bool sent_;
};

// The two ends do not trust each other, or a certificate or key cannot be used.
class TlsError : public Error {
 public:
  TlsError(const std::string& message, std::string reason) : Error(message), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// A stop was requested.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped") {}
};

// Loads the libraries that requests need. Without this call, the first request loads them. Returns false if they are
// missing; every request then throws Error.
bool available() noexcept;

// Returns the response, regardless of its status; redirects are not followed. Throws ConnectionError, TlsError or
// Error, naming the method and the URL.
Response send(const Request& request);

// Connections that stay open between calls, one per concurrent call.
class Connections {
 public:
  Connections();
  ~Connections();

  // Like http::send, but a requested stop ends the call within 0.1 s, with status 0.
  Response send(const Request& request, std::stop_token stop = {});

  // Passes the body of a 2xx response to `sink` as it arrives, until the body ends, `sink` returns false or a stop is
  // requested. Returns the body of any other response. Rethrows exceptions from `sink`.
  // `begin`, if set, receives the status and the headers of a 2xx response before its body.
  Response stream(const Request& request, std::stop_token stop, const std::function<bool(std::string_view)>& sink,
                  const std::function<void(const Response&)>& begin = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the URL without its user name and password, so that it can be shown.
std::string without_user(std::string url);

// Escapes `text` for use as one segment of a URL's path.
std::string escape(const std::string& text);

}  // namespace adaptdl::http
