// A client of one API server: REST as Kubernetes speaks it.
//
// Connections are kept and used again, one a call that is under way. What may be tried again is, with back-off and as
// Retry-After says: reads always; changes only where the server did not take them (no connection, 429, 503 with
// Retry-After). Credentials are asked for when they are needed and again after a 401.
//
// Threading: every member may be called from any thread at once. Lifetime: what is made from a client (Watch, Exec, …)
// must not outlive it.
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

#include "kube/access.h"
#include "kube/error.h"
#include "kube/resource.h"

namespace adaptdl::kube {

using Query = std::vector<std::pair<std::string, std::string>>;  // unescaped

enum class Patch { kMerge, kJson, kApply };  // RFC 7386, RFC 6902, server-side apply (with fieldManager in the query)
enum class Propagation { kBackground, kForeground, kOrphan };

struct ListOptions {
  std::string label_selector, field_selector;
  int page = 500;  // objects an answer
  // Take what the server has in memory (resourceVersion=0): much less work for it, but it may be a moment old, and a
  // server that has it so sends all in one answer.
  bool from_memory = false;
};

struct RemoveOptions {
  Propagation propagation = Propagation::kBackground;
  std::optional<std::chrono::seconds> grace;  // none: the object's own
  std::string uid;                            // refuse another object of that name
};

class RawConnection;  // raw_connection.h

class Client {
 public:
  struct Options {
    std::chrono::milliseconds connect_timeout = std::chrono::seconds(5);
    std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of a call, but streams have none
    std::chrono::milliseconds patience = std::chrono::seconds(8);  // how long a call is tried again
  };
  explicit Client(Access access);
  Client(Access access, Options options);
  ~Client();

  const Access& access() const;

  // The object or list that the path names. Throws ApiError, http::ConnectionError, Error: all below do; where they
  // take a stop, it ends them within 0.1 s by http::Stopped.
  nlohmann::json get(const std::string& path, const Query& query = {}, std::stop_token stop = {});
  nlohmann::json create(const std::string& collection, const nlohmann::json& object, const Query& query = {});
  nlohmann::json replace(const std::string& path, const nlohmann::json& object, const Query& query = {});
  nlohmann::json patch(const std::string& path, Patch type, const nlohmann::json& change, const Query& query = {});
  nlohmann::json remove(const std::string& path, const RemoveOptions& options = {});

  // Calls `each` with every object of a collection, page by page, and returns the list's resourceVersion. Objects lack
  // apiVersion and kind, as in every list. Where a continue token has become too old, the rest is of a later version
  // than the one that is returned: a watch from there tells the differences.
  std::string list(const std::string& collection, const ListOptions& options,
                   const std::function<void(nlohmann::json&&)>& each, std::stop_token stop = {});
  std::vector<nlohmann::json> list(const std::string& collection, const ListOptions& options = {});

  // Gives what the server sends to `sink` piece by piece, until it ends, `sink` returns false or a stop is asked for.
  // A connection that breaks throws http::ConnectionError. Nothing is tried again but a 401.
  void stream(const std::string& path, const Query& query, std::stop_token stop,
              const std::function<bool(std::string_view)>& sink);

  // A connection to the server on which nothing was said yet, for a WebSocket: TLS, proxy and client certificate as for
  // all else. `authorization_headers` are to be sent with the first request on it ("Name: value").
  std::unique_ptr<RawConnection> connect();
  std::vector<std::string> authorization_headers();
  // Throws the ApiError that an answer on such a connection stands for.
  [[noreturn]] void refuse(const std::string& path, int code, std::string_view body) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::kube
