#include "command/base/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>

namespace adaptdl::cli {
namespace {

constexpr auto kLetsWorkEnd = std::chrono::seconds(3);
constexpr timespec kLook{0, 100'000'000};

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, number);
  return set;
}

}  // namespace

StopSignals::StopSignals(std::function<void()> last_resort) : last_resort_(std::move(last_resort)) {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Makes writes to a closed pipe fail instead of ending the process, so that the command can report the error and
  // clean up.
  ::signal(SIGPIPE, SIG_IGN);
  watcher_ = std::jthread([this](std::stop_token over) { watch(over); });
}

StopSignals::~StopSignals() {
  watcher_.request_stop();
  watcher_.join();
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void StopSignals::watch(std::stop_token over) {
  const sigset_t set = stop_signals();
  std::chrono::steady_clock::time_point first;
  while (!over.stop_requested()) {
    const int number = ::sigtimedwait(&set, nullptr, &kLook);
    const auto now = std::chrono::steady_clock::now();
    if (signal_ == 0 && number > 0) {
      signal_ = number;
      first = now;
      source_.request_stop();
    } else if (signal_ != 0 && (number > 0 || now - first > kLetsWorkEnd)) {
      last_resort_();
      ::_exit(exit_code());
    }
  }
}

}  // namespace adaptdl::cli
