// The replica server runs the replicas of a job that a RemoteHost starts on this node.
#pragma once

#include "base/fd.h"

namespace adaptdl::sched {

// If argv[0] is this name, `adaptdl` runs as a replica server instead of as a command. It then communicates through
// standard input and output.
inline constexpr char kReplicaServerName[] = "adaptdl-replicas";

// Serves one RemoteHost until it closes the connection, and returns the process's exit code. No replica outlives this
// process, even if this process is killed. Must be called while the process has one thread. Throws Error if a process
// or descriptor cannot be created, or if a replica cannot be killed.
int serve_replicas(Fd in, Fd out);

}  // namespace adaptdl::sched
