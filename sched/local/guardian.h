// The guardian: a tiny process that outlives its launcher just long enough to end what the launcher started.
//
// A launcher that is killed by SIGKILL cannot clean up. The guardian holds the read end of a pipe whose only write end
// is the launcher's: when it reads the end of file, the launcher is gone, and it kills every session that it was told
// of and not told to forget. It has a session of its own (no Ctrl-C reaches it), a command line of its own (`pkill -f
// "adaptdl run"` does not match it), ignores the polite signals, and keeps no other descriptor of the launcher's open.
//
// Process ids: a session must be forgotten before its leader is reaped, since only until then is its id certain not to
// be used again.
//
// Threading: to be made while the process has one thread; used by one thread at a time.
#pragma once

#include <sys/types.h>

#include "local/fd.h"

namespace adaptdl::sched {

class Guardian {
 public:
  // Starts the process. Throws Error if that fails.
  Guardian();
  // Ends and reaps it, after it killed what it still watches.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Both take effect at once, even if the launcher dies right after: the guardian reads all that was written before it
  // acts.
  void watch(pid_t session) noexcept;
  void forget(pid_t session) noexcept;

  pid_t pid() const noexcept { return pid_; }

 private:
  Fd pipe_;
  pid_t pid_ = -1;
};

}  // namespace adaptdl::sched
