// A replica server, like `adaptdl` when its argv[0] is kReplicaServerName.
#include <exception>

#include "local/replica/replica_server.h"

int main() {
  try {
    return adaptdl::sched::serve_replicas(adaptdl::Fd(0), adaptdl::Fd(1));
  } catch (const std::exception&) {
    return 1;
  }
}
