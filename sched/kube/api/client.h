// A REST client for one Kubernetes API server.
//
// Connections are reused, and concurrent calls use separate connections. Calls that fail temporarily (retry.h) are
// retried after a back-off or after the time in Retry-After: reads always, changes only if the server did not accept
// them (no connection, 429, or 503 with Retry-After). Credentials are obtained when they are first needed and again
// after a 401.
//
// Threading: every member may be called from any thread at any time. Lifetime: a client must outlive the objects that
// use it (Session, PortForward, …).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/api/access.h"
#include "kube/api/error.h"
#include "kube/api/resource.h"

namespace adaptdl::kube {

using Query = std::vector<std::pair<std::string, std::string>>;  // keys and values, not percent-encoded

enum class Patch { kMerge, kJson, kApply };  // RFC 7386, RFC 6902, server-side apply (with fieldManager in the query)
enum class Propagation { kBackground, kForeground, kOrphan };

struct ListOptions {
  std::string label_selector, field_selector;
  int page = 500;  // objects per response
  // Read from the server's watch cache (resourceVersion=0). Such a read costs the server much less, but the objects may
  // be slightly out of date, and a server that reads from its cache may ignore `page`.
  bool from_memory = false;
};

struct RemoveOptions {
  Propagation propagation = Propagation::kBackground;
  std::optional<std::chrono::seconds> grace;  // null: the object's own grace period
  std::string uid;                            // if not empty, an object of that name with another uid is not deleted
};

class RawConnection;  // raw_connection.h

class Client {
 public:
  struct Options {
    std::chrono::milliseconds connect_timeout = std::chrono::seconds(5);
    std::chrono::milliseconds timeout = std::chrono::seconds(60);  // per call; streams have no limit
    std::chrono::milliseconds patience = std::chrono::seconds(8);  // how long a failing call is retried
  };
  explicit Client(Access access);
  Client(Access access, Options options);
  ~Client();

  const Access& access() const;

  // Returns the object or list at `path`. This function and those below throw ApiError, http::ConnectionError and
  // Error; a requested stop ends a call within 0.1 s with http::Stopped.
  nlohmann::json get(const std::string& path, const Query& query = {}, std::stop_token stop = {});
  nlohmann::json create(const std::string& collection, const nlohmann::json& object, const Query& query = {});
  nlohmann::json replace(const std::string& path, const nlohmann::json& object, const Query& query = {});
  nlohmann::json patch(const std::string& path, Patch type, const nlohmann::json& change, const Query& query = {});
  nlohmann::json remove(const std::string& path, const RemoveOptions& options = {});

  // Calls `each` for every object in a collection, page by page, and returns the list's resourceVersion. As in every
  // list, the objects lack apiVersion and kind. If a continue token expires, the remaining objects come from a later
  // version than the returned one; a watch that starts at the returned version delivers the differences.
  std::string list(const std::string& collection, const ListOptions& options,
                   const std::function<void(nlohmann::json&&)>& each, std::stop_token stop = {});
  std::vector<nlohmann::json> list(const std::string& collection, const ListOptions& options = {});

  // Passes the response to `sink` piece by piece until it ends, `sink` returns false or a stop is requested. Throws
  // http::ConnectionError if the connection breaks. Only a 401 is retried.
  void stream(const std::string& path, const Query& query, std::stop_token stop,
              const std::function<bool(std::string_view)>& sink);

  // Opens a connection for a WebSocket without sending anything on it. The TLS settings, the proxy and the client
  // certificate are the same as for other calls. The first request must carry `authorization_headers`, each of the form
  // "Name: value".
  std::unique_ptr<RawConnection> connect();
  std::vector<std::string> authorization_headers();
  // Throws the ApiError for an error response on a connection from connect().
  [[noreturn]] void refuse(const std::string& path, int code, std::string_view body) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::kube
