// Handles an adaptdl::Error that a training program does not catch.
#pragma once

namespace adaptdl::internal {

// From now on, an uncaught Error is printed as one line after "error: ", and ends the process as it would from a main
// that catches it (error.h). Other exceptions still reach the handler that std::terminate called before.
void report_uncaught_errors() noexcept;

}  // namespace adaptdl::internal
