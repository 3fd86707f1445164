// Process 1 of a sandbox: mounts the step's root, starts the command, and waits until all have ended.
//
// Threading: for a process that was just forked, and has one thread.
#pragma once

#include "image/sandbox_keeper.h"
#include "socket.h"

namespace adaptdl::image {

// Its whole life, in a process namespace of its own. `keeper` is its end of the channel to the keeper.
[[noreturn]] void be_process_one(SandboxPlan plan, net::Fd keeper);

}  // namespace adaptdl::image
