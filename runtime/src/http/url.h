// A parsed URL.
//
// Threading: each object may be used by one thread at a time.
#pragma once

#include <memory>
#include <string>

struct Curl_URL;  // libcurl's handle

namespace adaptdl::http {

class Url {
 public:
  // Throws Error if the text is not a URL with a scheme.
  explicit Url(const std::string& text);

  std::string text() const;
  // The parts are empty if the URL does not contain them. A host that is an IPv6 address is in brackets.
  std::string scheme() const;
  std::string host() const;
  std::string port() const;
  std::string path() const;  // with escapes such as %20 decoded
  // Returns the port, or the scheme's default port if the URL does not contain one.
  std::string effective_port() const;

  // Replaces the URL with the target of a redirect, which may be relative to it. Returns false if the target is
  // invalid.
  bool redirect(const std::string& target);
  // Replaces the host. Returns false if it is invalid.
  bool set_host(const std::string& host);

 private:
  struct Deleter {
    void operator()(Curl_URL* handle) const;
  };
  std::unique_ptr<Curl_URL, Deleter> handle_;
};

}  // namespace adaptdl::http
