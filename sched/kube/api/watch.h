// Watches a collection: first reports every existing object, then each change, until the caller stops it.
//
// When the server ends a watch, another one is started. After a broken connection or a restart of the API server,
// watching continues from the last resourceVersion (kept recent by bookmarks). After a 410, the objects are listed
// again, and only the differences are reported. No change of state is lost or reported twice, though several changes to
// one object may be reported as one.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "kube/api/client.h"

namespace adaptdl::kube {

struct Change {
  enum class Kind {
    kAdded,
    kModified,
    kDeleted,
    kSynced,      // no object: all objects of the first list or of a new list have been reported; or the server
                  // responds again after kInterrupted, and the changes made in the meantime will follow
    kInterrupted  // no object: the server is unreachable because of `message`; the watch is retried
  };
  Kind kind;
  nlohmann::json object;  // contains only name, namespace and uid if a new list revealed the deletion
  std::string message;
};

// Calls `handle` in this thread until it returns false or a stop is requested. A stop takes effect within 0.1 s.
// Rethrows any error of the first list. Later, throws ApiError for errors that waiting cannot resolve (403, 404), but
// only if they last for kStarting: a starting server may report them before it has loaded its rules and resources.
inline constexpr std::chrono::seconds kStarting{15};
void watch(Client& client, const std::string& collection, const ListOptions& options, std::stop_token stop,
           const std::function<bool(Change&&)>& handle);

}  // namespace adaptdl::kube
