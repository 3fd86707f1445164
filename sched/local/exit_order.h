// The order in which processes end.
//
// Whoever fails first brings the others down within milliseconds, and a launcher on a busy machine may look only when
// all are gone. The kernel knows better: it lists the descriptors of processes (pidfd) in the order in which they
// became ready.
#pragma once

#include <sys/types.h>

#include <map>
#include <vector>

#include "local/fd.h"

namespace adaptdl::sched {

class ExitOrder {
 public:
  ExitOrder();

  // Watches a child that was not reaped yet. On a kernel without pidfds (before 5.3) nothing is watched.
  void watch(pid_t pid);
  // How many of the watched ended before `pid` did, which has ended; after all others, if that is not known.
  std::size_t place(pid_t pid);

 private:
  void update();

  Fd epoll_;
  std::map<pid_t, Fd> watched_;
  std::vector<pid_t> ended_;
};

}  // namespace adaptdl::sched
