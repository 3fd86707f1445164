// The inside of a sandbox: the processes between the builder and a step's command.
//
// The builder forks a keeper, which is in new namespaces and waits for its one child; that is process 1 of the new
// process namespace, mounts all, starts the command, and clears up after it. Each is killed with the one above it.
//
// Threading: for processes that were just forked, and have one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "image/sandbox.h"
#include "socket.h"

namespace adaptdl::image {

// What the inside needs, made before the fork.
struct SandboxPlan {
  const SandboxStep* step = nullptr;
  std::vector<std::string> caches;  // directories of the step's cache mounts, in their order
  pid_t builder = 0;                // the thread's process
  net::Fd output;                   // the command's
  net::Fd report;                   // to the builder, as below
};

// What process 1 reports: one of these and, after kFailed, a text; after kEnded, the command's wait status.
inline constexpr char kFailed = 'F', kEnded = 'E';

// The keeper's whole life. All signals are blocked.
[[noreturn]] void keep_sandbox(SandboxPlan plan);

}  // namespace adaptdl::image
