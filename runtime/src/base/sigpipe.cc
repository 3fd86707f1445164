#include "adaptdl/sigpipe.h"

#include <signal.h>

#include <cerrno>
#include <ctime>

namespace adaptdl {
namespace {

sigset_t sigpipe_alone() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

SigpipeGuard::SigpipeGuard() noexcept {
  sigset_t pending;
  ::sigpending(&pending);
  was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
  const sigset_t pipe = sigpipe_alone();
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before_);
}

SigpipeGuard::~SigpipeGuard() {
  const sigset_t pipe = sigpipe_alone();
  const timespec at_once{};
  if (!was_pending_)
    while (::sigtimedwait(&pipe, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace adaptdl
