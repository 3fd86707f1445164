// Errors for failed system calls.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "adaptdl/error.h"

namespace adaptdl::image {

// Throws the Error "WHAT: REASON", where REASON is the system's message for `error`.
[[noreturn]] inline void fail_call(const std::string& what, int error = errno) {
  throw Error(fmt::format("{}: {}", what, std::strerror(error)));
}

}  // namespace adaptdl::image
