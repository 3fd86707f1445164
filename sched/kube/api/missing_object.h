// Distinguishes an object that does not exist from a kind that the API server does not know.
#pragma once

#include "kube/api/error.h"

namespace adaptdl::kube {

// Returns whether the server reports that the object does not exist. A server that does not know the object's kind,
// such as one that is starting, also responds with a 404, but does not name the object.
inline bool is_missing_object(const ApiError& error) {
  return error.not_found() && error.details().is_object() && error.details().contains("name");
}

}  // namespace adaptdl::kube
