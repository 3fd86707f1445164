#include "local/launch/launch_signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace {

sigset_t stop_signals() {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal_number : {SIGINT, SIGTERM}) ::sigaddset(&mask, signal_number);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) ::sigaddset(&mask, SIGHUP);
  return mask;
}

}  // namespace

void hold_stop_signals() {
  const sigset_t mask = stop_signals();
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
}

LaunchSignals::LaunchSignals() {
  sigset_t mask = stop_signals();
  for (const int signal_number : {SIGCHLD, SIGWINCH}) ::sigaddset(&mask, signal_number);
  fd_ = Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw Error(fmt::format("cannot listen for signals: {}", std::strerror(errno)));
  ::sigprocmask(SIG_BLOCK, &mask, &mask_before_);
  ::sigdelset(&mask_before_, SIGINT);
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_before_);
  // If SIGCHLD were inherited as ignored, the kernel would reap the replicas and discard their exit statuses.
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &action, &child_before_);
}

LaunchSignals::~LaunchSignals() {
  take();
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  for (const int late : {SIGTERM, SIGHUP}) ::signal(late, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::vector<int> LaunchSignals::take() {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

}  // namespace adaptdl::sched
