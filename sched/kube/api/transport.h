// Sends calls to an API server: adds credentials, retries, and turns refusals into errors. Used only by Client.
//
// Threading: every member may be called from any thread at any time.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "http/http.h"
#include "kube/api/client.h"
#include "kube/api/credentials.h"
#include "kube/api/raw_connection.h"

namespace adaptdl::kube {

struct Call {
  std::string method, path;  // the path is percent-encoded
  Query query;               // not percent-encoded
  std::string body, content_type;
};

class Transport {
 public:
  Transport(Access access, Client::Options options);
  ~Transport();
  const Access& access() const { return access_; }

  // Returns the body of a 2xx response. Retries according to the rules in retry.h. Throws ApiError,
  // http::ConnectionError, http::Stopped, Error.
  std::string call(const Call& call, const std::stop_token& stop);
  // Sends the call once; resends it only after a first 401.
  void stream(const Call& call, const std::stop_token& stop, const std::function<bool(std::string_view)>& sink);
  std::unique_ptr<RawConnection> connect();
  std::vector<std::string> authorization_headers();

  // Throws the ApiError for an error response, including one on a raw connection.
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
