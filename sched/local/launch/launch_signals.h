// LaunchSignals reads the signals of a launcher as data in its event loop, so that they do not interrupt the loop.
//
// While a LaunchSignals exists, SIGINT, SIGTERM, SIGHUP (unless it is ignored, for example under nohup), SIGCHLD and
// SIGWINCH are blocked and read from a descriptor, and writing to a closed pipe fails instead of raising SIGPIPE. The
// destructor discards unread signals, since the run that they were meant to end has ended, and restores everything
// except SIGTERM and SIGHUP. Those two are ignored from then on, so that a late signal cannot change how the launcher
// ends. Ctrl-C still can, even if hold_stop_signals() had blocked it.
#pragma once

#include <signal.h>

#include <vector>

#include "base/fd.h"

namespace adaptdl::sched {

// Blocks the signals that request the end of the run (SIGINT, SIGTERM, and SIGHUP unless it is ignored) until a
// LaunchSignals reads them. Must be called before the run's record is created: if a signal killed the launcher, the
// record would be left incomplete.
void hold_stop_signals();

class LaunchSignals {
 public:
  // Throws Error if the descriptor cannot be created.
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  // Returns a descriptor that is readable when signals are pending.
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
