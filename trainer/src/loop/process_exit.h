// Ends the process of a replica.
#pragma once

#include <functional>

namespace adaptdl::internal {

// Ends the process with `code`, after flushing its output. Static destructors do not run, because threads may still use
// static objects.
void exit_process(int code);

// Makes exit_process call `handler`, which must not return, instead of ending the process. This is for tests.
void set_exit_handler(std::function<void(int code)> handler);

}  // namespace adaptdl::internal
