// Writing to a peer that is gone: an error, instead of the end of the process.
#pragma once

#include <csignal>

namespace adaptdl {

// Keeps SIGPIPE from the calling thread while it lives, and from the threads that are started meanwhile for good: their
// writes fail with EPIPE. A signal that came is taken away at the end. What the process does with SIGPIPE is the
// program's and stays as it is. Threading: to be destroyed by the thread that made it.
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
