// Follows a collection: first every object that is there, then each change, for as long as wanted.
//
// It goes on over whatever ends a watch: from the last resourceVersion (bookmarks keep it fresh) after a connection
// that broke or an API server that started again; by a new list, of which only the differences are told, after 410. So
// no change of state is lost or told twice, though several changes of one object may be told as one.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "kube/client.h"

namespace adaptdl::kube {

struct Change {
  enum class Kind {
    kAdded,
    kModified,
    kDeleted,
    kSynced,      // without an object: all that was there at the start, or after a new list, has been told; or the
                  // server is back after kInterrupted, and what has changed meanwhile follows
    kInterrupted  // without an object: the server cannot be reached; `message` says why. It is tried again.
  };
  Kind kind;
  nlohmann::json object;  // of one that is found deleted by a new list, only the metadata's name, namespace and uid
  std::string message;
};

// Calls `handle` in this thread until it returns false or a stop is asked for, which ends it within 0.1 s. Throws what
// the first list throws, and later ApiError for what does not get better by waiting (403, 404); but for kStarting, as a
// server that starts may answer so before it knows its own rules and resources.
inline constexpr std::chrono::seconds kStarting{15};
void watch(Client& client, const std::string& collection, const ListOptions& options, std::stop_token stop,
           const std::function<bool(Change&&)>& handle);

}  // namespace adaptdl::kube
