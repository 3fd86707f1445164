#include "local/agent_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "local/agent.h"
#include "local/fd.h"

namespace adaptdl::sched {
namespace {

// Between fork and exec, where other threads may hold any lock: only async-signal-safe calls.
[[noreturn]] void become_agent(const char* program, char* const* arguments) {
  // Before the caller continues: when it ends, its locks must not be held here.
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
  // So as not to keep a file system busy.
  if (::chdir("/") == 0) ::execv(program, arguments);
  ::_exit(127);
}

}  // namespace

void start_agent(const std::filesystem::path& program, const std::filesystem::path& directory) noexcept {
  char name[] = "adaptdl-agent";
  static_assert(sizeof name == sizeof kAgentName);
  // The arguments of exec are not const, and it changes none.
  char* const arguments[] = {name, const_cast<char*>(directory.c_str()), nullptr};
  const pid_t child = ::fork();
  if (child == 0) become_agent(program.c_str(), arguments);
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace adaptdl::sched
