// Handles adaptdl::Errors that a training program does not catch.
#pragma once

namespace adaptdl::internal {

// From now on, an uncaught Error is printed as one line after "error: ", and ends the process with the exit code
// described in error.h. Other exceptions still reach the previous std::terminate handler.
void report_uncaught_errors() noexcept;

}  // namespace adaptdl::internal
