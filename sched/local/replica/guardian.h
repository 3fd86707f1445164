// The guardian is a tiny process that outlives its launcher just long enough to end the processes that the launcher
// started.
//
// A launcher that is killed by SIGKILL cannot clean up. The guardian holds the read end of a pipe whose only write end
// is held by the launcher. At end-of-file, the launcher has ended, and the guardian kills every session that it
// watches. It has its own session (Ctrl-C does not reach it) and its own command line (`pkill -f "adaptdl run"` does
// not match it), ignores SIGTERM and similar signals, and keeps none of the launcher's other descriptors open.
//
// Process ids: a session must be forgotten before its leader is reaped, since its id may be reused after that.
//
// Threading: a Guardian must be created while the process has one thread, and used by one thread at a time.
#pragma once

#include <sys/types.h>

#include "base/fd.h"

namespace adaptdl::sched {

class Guardian {
 public:
  // Starts the guardian process. Throws Error if that fails.
  Guardian();
  // Ends and reaps the guardian process, which first kills the sessions that it still watches.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Both functions take effect even if the launcher dies immediately afterwards, since the guardian reads all messages
  // before it acts.
  void watch(pid_t session) noexcept;
  void forget(pid_t session) noexcept;

  pid_t pid() const noexcept { return pid_; }

 private:
  Fd pipe_;
  pid_t pid_ = -1;
};

}  // namespace adaptdl::sched
