// LaunchSignals reads the signals of a launcher as data in its event loop, so that they do not interrupt it.
//
// While a LaunchSignals exists, SIGINT, SIGTERM, SIGHUP (unless it is ignored, as under nohup), SIGCHLD and SIGWINCH
// are blocked and read from a descriptor, and a closed pipe is an error of write(2) instead of SIGPIPE. The destructor
// drops the signals that were not read, which asked for the end of a run that is over, and restores everything except
// SIGTERM and SIGHUP. Those are ignored from then on, so that a late one cannot change how the launcher ends. Ctrl-C
// still can, even if hold_stop_signals() had blocked it.
#pragma once

#include <signal.h>

#include <vector>

#include "local/fd.h"

namespace adaptdl::sched {

// Blocks the signals that ask for an end (SIGINT, SIGTERM, and SIGHUP unless it is ignored) until a LaunchSignals reads
// them. Must be called before the run has a record, which would stay incomplete if the launcher died.
void hold_stop_signals();

class LaunchSignals {
 public:
  // Throws Error if the system refuses the descriptor.
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  // Readable when signals are pending.
  int fd() const noexcept { return fd_.get(); }
  // Returns the signals that arrived since the last call. Does not block.
  std::vector<int> take();

 private:
  Fd fd_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  struct sigaction child_before_ {};
};

}  // namespace adaptdl::sched
