// ExitOrder determines the order in which processes end.
//
// The replica that fails first brings the other replicas down within milliseconds, and a busy launcher may not notice
// the failure until all of them have ended. The kernel records the order: it lists process descriptors (pidfds) in the
// order in which they became ready.
#pragma once

#include <sys/types.h>

#include <map>
#include <vector>

#include "base/fd.h"

namespace adaptdl::sched {

class ExitOrder {
 public:
  ExitOrder();

  // Watches a child that has not been reaped yet. On a kernel without pidfds (before 5.3), nothing is watched.
  void watch(pid_t pid);
  // Returns how many of the watched processes ended before `pid`, which must have ended. If the order is unknown,
  // assumes that `pid` ended last.
  std::size_t place(pid_t pid);

 private:
  void update();

  Fd epoll_;
  std::map<pid_t, Fd> watched_;
  std::vector<pid_t> ended_;
};

}  // namespace adaptdl::sched
