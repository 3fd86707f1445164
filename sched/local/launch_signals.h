// The signals of a launcher, read as data in its loop instead of interrupting it.
//
// While one exists, SIGINT, SIGTERM, SIGHUP (unless it is ignored, as under nohup), SIGCHLD and SIGWINCH are blocked
// and wait in a descriptor, and a closed pipe is an error of write(2) instead of SIGPIPE. The destructor drops
// what was not read, which asked for the end of a run that is over, and puts everything back but for SIGTERM and
// SIGHUP: from then on they are ignored, so that one that comes late cannot change how the launcher ends. Ctrl-C still
// does, also if it was held.
#pragma once

#include <signal.h>

#include <vector>

#include "local/fd.h"

namespace adaptdl::sched {

// Blocks those that ask for the end of a run (SIGINT, SIGTERM, and SIGHUP unless it is ignored) until a LaunchSignals
// reads them. To be called before the run has a record: a launcher that dies would leave it incomplete.
void hold_stop_signals();

class LaunchSignals {
 public:
  // Throws Error if the system refuses the descriptor.
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  // Readable when signals wait.
  int fd() const noexcept { return fd_.get(); }
  // The signals that came since the last call, without blocking.
  std::vector<int> take();

 private:
  Fd fd_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  struct sigaction child_before_ {};
};

}  // namespace adaptdl::sched
