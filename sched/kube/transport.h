// One call to an API server: credentials, tries and refusals.
//
// Threading: every member may be called from any thread at once. Private to the client.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "http/http.h"
#include "kube/client.h"
#include "kube/credentials.h"
#include "kube/raw_connection.h"

namespace adaptdl::kube {

struct Call {
  std::string method, path;  // the path escaped
  Query query;               // unescaped
  std::string body, content_type;
};

class Transport {
 public:
  Transport(Access access, Client::Options options);
  ~Transport();
  const Access& access() const { return access_; }

  // The body of a 2xx answer; tried again as retry.h says. Throws ApiError, http::ConnectionError, http::Stopped,
  // Error.
  std::string call(const Call& call, const std::stop_token& stop);
  // Once.
  void stream(const Call& call, const std::stop_token& stop, const std::function<bool(std::string_view)>& sink);
  std::unique_ptr<RawConnection> connect();
  std::vector<std::string> authorization_headers();

  // What an answer that is no success says of a call; for requests that were made on a raw connection too.
  [[noreturn]] void refuse(const std::string& method, const std::string& path, int code, std::string_view body) const;

 private:
  struct Identity;
  http::Request request(const Call& call, const Authorization& authorization,
                        std::chrono::milliseconds connect_timeout);
  [[noreturn]] void unreachable(const http::ConnectionError& error, std::chrono::milliseconds tried) const;
  [[noreturn]] void distrust(const http::TlsError& error) const;

  const Access access_;
  const Client::Options options_;
  const std::unique_ptr<Identity> identity_;
  http::Connections connections_;
};

}  // namespace adaptdl::kube
