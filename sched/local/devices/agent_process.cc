#include "local/devices/agent_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/fd.h"
#include "local/devices/agent.h"

namespace adaptdl::sched {
namespace {

// Only async-signal-safe calls are allowed between fork and exec, since another thread may have held a lock.
[[noreturn]] void become_agent(const char* program, char* const* arguments) {
  // The caller waits until its files are closed here, so that its locks do not outlive it.
  close_from(STDERR_FILENO + 1);
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) ::dup2(nothing, fd);
  if (nothing > STDERR_FILENO) ::close(nothing);
  // The agent must not keep a file system busy.
  if (::chdir("/") == 0) ::execv(program, arguments);
  ::_exit(127);
}

}  // namespace

void start_agent(const std::filesystem::path& program, const std::filesystem::path& directory) noexcept {
  char name[] = "adaptdl-agent";
  static_assert(sizeof name == sizeof kAgentName);
  // exec's parameters are not const, but exec does not change them.
  char* const arguments[] = {name, const_cast<char*>(directory.c_str()), nullptr};
  const pid_t child = ::fork();
  if (child == 0) become_agent(program.c_str(), arguments);
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace adaptdl::sched
