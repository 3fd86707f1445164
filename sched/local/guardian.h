// The guardian is a tiny process that outlives its launcher just long enough to end what the launcher started.
//
// A launcher that is killed by SIGKILL cannot clean up. The guardian holds the read end of a pipe whose only write end
// is the launcher's. When it reads the end of file, the launcher is gone, and the guardian kills every session that it
// watches. It has its own session (Ctrl-C does not reach it) and its own command line (`pkill -f "adaptdl run"` does
// not match it), ignores SIGTERM and similar signals, and keeps no other descriptor of the launcher's open.
//
// Process ids: a session must be forgotten before its leader is reaped, since its id may be used again after that.
//
// Threading: a Guardian must be created while the process has one thread, and used by one thread at a time.
#pragma once

#include <sys/types.h>

#include "local/fd.h"

namespace adaptdl::sched {

class Guardian {
 public:
  // Starts the process. Throws Error if that fails.
  Guardian();
  // Ends and reaps the process, after it has killed what it still watches.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Both take effect even if the launcher dies right afterwards: the guardian reads everything before it acts.
  void watch(pid_t session) noexcept;
  void forget(pid_t session) noexcept;

  pid_t pid() const noexcept { return pid_; }

 private:
  Fd pipe_;
  pid_t pid_ = -1;
};

}  // namespace adaptdl::sched
