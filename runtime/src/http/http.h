// The only wrapper of libcurl: HTTP(S) requests, with limits on their time and size.
//
// Threading: all functions may be called concurrently from any thread. Lifetime: `send` keeps nothing between calls;
// `Connections` keeps connections, and must outlive its calls.
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
  std::string authority;            // PEM certificates that replace the system's; empty: the system's
  bool system_authorities = false;  // also trusts the system's, besides `authority`
  std::string certificate, key;     // PEM; empty: none
  std::string server_name;          // required name in the server's certificate; empty: the URL's host
  bool insecure = false;            // accepts any certificate
};

// The call rethrows exceptions of `read_body`; fewer bytes than `read_size` are an error of the connection.
struct Request {
  std::string method = "GET";
  std::string url;                   // http or https; other schemes are refused
  std::vector<std::string> headers;  // "Name: value"
  std::string body;                  // sent if it is not empty, or the method is PUT, POST or PATCH
  std::function<std::size_t(char*, std::size_t)> read_body;  // if set, supplies the body piece by piece instead
  std::uint64_t read_size = 0;                               // bytes that `read_body` supplies in total
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of the whole call, to the last byte; 0: none
  std::chrono::seconds stall{0};                 // a connection that carries nothing for this long fails; 0: no limit
  std::size_t max_body = std::size_t{16} << 20;  // max bytes of the answer; a larger one is an error
  bool compressed = false;                       // lets the server compress its answer
  std::shared_ptr<const Tls> tls;                // none: the defaults
  // The URL of an http, https or socks5 proxy (a socks5 proxy resolves names). If empty, the
  // environment selects the proxy, and connections to this machine use none.
  std::string proxy;
};

struct Response {
  int status = 0;  // 0: a stop was requested before the answer began
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::optional<std::chrono::seconds> retry_after;
  // Returns the first header of that name (in lower case), or an empty string.
  std::string_view header(std::string_view name) const;
};

// No complete answer arrived: the server cannot be reached, or the connection broke. A retry may help. Where it cannot,
// such as for a malformed URL or an answer that is too large, the error is a plain Error.
class ConnectionError : public Error {
 public:
  explicit ConnectionError(const std::string& message) : ConnectionError(message, message, true) {}
  ConnectionError(const std::string& message, std::string reason, bool sent)
      : Error(message), reason_(std::move(reason)), sent_(sent) {}
  const std::string& reason() const { return reason_; }  // without method and URL: "connection refused"
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

// Loads the libraries that requests need, which the first request does otherwise. Returns false if they are missing;
// every request then throws Error.
bool available() noexcept;

// Returns the answer, whatever its status; redirects are not followed. Throws ConnectionError, TlsError or Error, which
// name method and URL.
Response send(const Request& request);

// Connections that are kept from call to call, one per concurrent call.
class Connections {
 public:
  Connections();
  ~Connections();

  // Like http::send. A stop ends it within 0.1 s, with status 0.
  Response send(const Request& request, std::stop_token stop = {});

  // Passes the body of a 2xx answer to `sink` as it arrives, until it ends, `sink` returns false or a stop is
  // requested; returns the body of any other answer. Rethrows exceptions of `sink`.
  // `begin`, if set, receives the status and the headers of a 2xx answer before its body.
  Response stream(const Request& request, std::stop_token stop, const std::function<bool(std::string_view)>& sink,
                  const std::function<void(const Response&)>& begin = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns a URL that may be shown: without user and password.
std::string without_user(std::string url);

// Escapes `text` as one segment of a URL's path.
std::string escape(const std::string& text);

}  // namespace adaptdl::http
