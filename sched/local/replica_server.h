// The replica server runs the replicas of a job that a RemoteHost puts on this node.
#pragma once

#include "local/fd.h"

namespace adaptdl::sched {

// `adaptdl` is a replica server, not a command, if its argv[0] is this name. It then uses its standard input and
// output.
inline constexpr char kReplicaServerName[] = "adaptdl-replicas";

// Serves one RemoteHost until it closes its end, and returns the exit code of the process. No replica is left then,
// even if this process is killed. Must be called while the process has one thread. Throws Error if the system refuses
// processes or descriptors, or if a replica cannot be killed.
int serve_replicas(Fd in, Fd out);

}  // namespace adaptdl::sched
