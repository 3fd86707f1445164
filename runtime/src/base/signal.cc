#include "adaptdl/signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <string_view>
#include <utility>

namespace adaptdl::signal {
namespace {

// Signal handlers use these variables, and may use only lock-free atomics.
std::atomic<int> stop_number{0};
std::atomic<bool> save_wanted{false};
std::atomic<bool> interrupted{false};
std::atomic<bool> ignores_terminal{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void write_line(std::string_view line) noexcept {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Ends the process with SIGINT, so that its parent sees the cause. The signal is blocked while its handler runs, so
// unblock it.
void end_by_interrupt() noexcept {
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGINT, &by_default, nullptr);
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  ::raise(SIGINT);
  ::pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
}

void handle(int number, siginfo_t* info, void*) {
  const int saved_errno = errno;
  if (number == SIGINT) {
    const bool from_terminal = info && info->si_code == SI_KERNEL;
    if (from_terminal && ignores_terminal.load()) return;
    if (interrupted.exchange(true)) end_by_interrupt();
    write_line("adaptdl: SIGINT: checkpointing at the next step; interrupt again to end immediately\n");
  } else if (stop_number.load() == 0) {
    write_line("adaptdl: SIGTERM: checkpointing at the next step\n");
  }
  request_stop(number);
  errno = saved_errno;
}

void handle_save(int) { save_wanted = true; }

}  // namespace

void install() {
  static std::mutex mutex;
  static pid_t installed_in = 0;
  const std::lock_guard lock(mutex);
  if (std::exchange(installed_in, ::getpid()) == ::getpid()) return;
  struct sigaction before {};
  ::sigaction(SIGINT, nullptr, &before);
  ignores_terminal = !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_IGN;
  struct sigaction action {};
  action.sa_sigaction = handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_RESTART;  // the program's own reads and writes must not fail with EINTR
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction save {};
  save.sa_handler = handle_save;
  sigemptyset(&save.sa_mask);
  save.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &save, nullptr);
}

bool take_save_request() noexcept { return save_wanted.exchange(false); }

int stop_signal() noexcept { return stop_number.load(); }

void request_stop(int signal_number) noexcept {
  int none = 0;
  stop_number.compare_exchange_strong(none, signal_number);
}

}  // namespace adaptdl::signal
