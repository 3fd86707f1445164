// Calls of the system that failed.
//
// Threading: plain functions.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "adaptdl/error.h"

namespace adaptdl::image {

// Throws Error that says what failed, and why.
[[noreturn]] inline void fail_call(const std::string& what, int error = errno) {
  throw Error(fmt::format("{}: {}", what, std::strerror(error)));
}

}  // namespace adaptdl::image
