// Process 1 of a sandbox: mounts the step's root, starts the command, and waits until all processes have ended.
//
// REQUIRES: the process has just been forked, has a single thread, and is the first in its process namespace.
#pragma once

#include "base/fd.h"
#include "image/sandbox/sandbox_monitor.h"

namespace adaptdl::image {

// Runs process 1. `monitor` is this process's end of the channel to the monitor.
[[noreturn]] void be_process_one(SandboxPlan plan, Fd monitor);

}  // namespace adaptdl::image
