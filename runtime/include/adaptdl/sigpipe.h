// Makes a write to a closed connection return an error instead of ending the process.
#pragma once

#include <csignal>

namespace adaptdl {

// Blocks SIGPIPE in the calling thread for the lifetime of the guard, so that writes fail with EPIPE. Threads that are
// started during this time inherit the blocked signal and keep it blocked. The destructor discards a SIGPIPE that was
// raised in the meantime. The process's SIGPIPE disposition does not change. Threading: the guard must be destroyed by
// the thread that created it.
class SigpipeGuard {
 public:
  SigpipeGuard() noexcept;
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace adaptdl
