// Blocks all signals in the calling thread while an instance exists. A thread that is started during that time inherits
// the mask, so that the process's signals are delivered to other threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace adaptdl {

class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace adaptdl
