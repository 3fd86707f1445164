// Telling an object that does not exist from a kind that the API server does not know.
//
// Threading: a pure function.
#pragma once

#include "kube/error.h"

namespace adaptdl::kube {

// Whether the server says that the object does not exist. A server that does not know its kind, such as one that is
// starting, answers 404 too, but names no object.
inline bool is_missing_object(const ApiError& error) {
  return error.not_found() && error.details().is_object() && error.details().contains("name");
}

}  // namespace adaptdl::kube
