// The one wrapper of libcurl: HTTP(S) requests, with bounds on their time and size.
//
// Threading: everything here may be called from any thread at once. Lifetime: `send` keeps nothing between calls;
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

// Whom to trust, and as whom to come. Never printed.
struct Tls {
  std::string authority;            // PEM certificates, instead of the system's; empty: the system's
  bool system_authorities = false;  // the system's besides `authority`
  std::string certificate, key;     // PEM; empty: none
  std::string server_name;          // what the server's certificate is to name; empty: the URL's host
  bool insecure = false;            // any certificate will do
};

// What `read_body` throws comes out of the call; fewer bytes than `read_size` are an error of the connection.
struct Request {
  std::string method = "GET";
  std::string url;                   // http or https; others are refused
  std::vector<std::string> headers;  // "Name: value"
  std::string body;                  // sent if it is not empty, or the method is PUT, POST or PATCH
  std::function<std::size_t(char*, std::size_t)>
      read_body;                // if there is one, it gives the body piece by piece instead
  std::uint64_t read_size = 0;  // bytes that `read_body` gives in all
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of all of it, to the last byte; 0: none
  std::chrono::seconds stall{0};  // a connection that carries nothing for so long is broken; 0: any pause is borne
  std::size_t max_body = std::size_t{16} << 20;  // bytes of the answer; a larger one is an error
  bool compressed = false;                       // lets the server compress its answer
  std::shared_ptr<const Tls> tls;                // none: the defaults
  // http, https or socks5 (names are resolved by it). Empty: as the environment says, but never for this machine
  // itself.
  std::string proxy;
};

struct Response {
  int status = 0;  // 0: a stop was asked for before the answer began
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::optional<std::chrono::seconds> retry_after;
  // The first header of that name (in lower case), or empty.
  std::string_view header(std::string_view name) const;
};

// No answer came: the server cannot be reached, or ends in the middle. Trying again may help. (What cannot get better,
// such as a malformed URL or an answer that is too large, is a plain Error.)
class ConnectionError : public Error {
 public:
  explicit ConnectionError(const std::string& message) : ConnectionError(message, message, true) {}
  ConnectionError(const std::string& message, std::string reason, bool sent)
      : Error(message), reason_(std::move(reason)), sent_(sent) {}
  const std::string& reason() const { return reason_; }  // without method and URL, as "connection refused"
  bool sent() const { return sent_; }                    // whether the server may have got the request

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

// A stop was asked for.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped") {}
};

// Loads what requests need, as the first of them does otherwise. Returns false if it is not there: then each throws
// Error.
bool available() noexcept;

// The answer, whatever its status; redirects are not followed. Throws ConnectionError, TlsError and Error, naming
// method and URL.
Response send(const Request& request);

// Connections that are kept from call to call, one for each call that is under way.
class Connections {
 public:
  Connections();
  ~Connections();

  // As http::send. A stop ends it within 0.1 s, with status 0.
  Response send(const Request& request, std::stop_token stop = {});

  // Gives the body of a 2xx answer to `sink` as it comes, until it ends, `sink` returns false or a stop is asked for;
  // of any other answer, returns the body. What `sink` throws comes out here.
  // `begin`, if there is one, is given the status and the headers of a 2xx answer before its body.
  Response stream(const Request& request, std::stop_token stop, const std::function<bool(std::string_view)>& sink,
                  const std::function<void(const Response&)>& begin = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A URL as it may be shown: without a user and password.
std::string without_user(std::string url);

// `text` as one segment of a URL's path.
std::string escape(const std::string& text);

}  // namespace adaptdl::http
