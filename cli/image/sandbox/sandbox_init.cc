#include "image/sandbox/sandbox_init.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "adaptdl/error.h"
#include "image/base/failed_call.h"
#include "image/sandbox/build_namespace.h"
#include "image/sandbox/sandbox_command.h"
#include "image/sandbox/sandbox_root.h"

namespace adaptdl::image {
namespace {

std::string read_pipe(int file) {
  std::string text;
  char buffer[512];
  for (ssize_t count; (count = ::read(file, buffer, sizeof buffer)) > 0 || (count < 0 && errno == EINTR);)
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

// Asks the kernel to kill this process when the monitor dies, and exits if the monitor has already died.
void die_with_monitor(const Fd& monitor) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd gone{monitor.get(), 0, 0};
  if (::poll(&gone, 1, 0) != 0) ::_exit(1);
}

// Gives up all privileges over the machine and the mounts. A build by root enters a user namespace with the same IDs;
// any other build is already in a user namespace.
void leave_machine(const Fd& monitor, const MadePaths& made) {
  if (!has_own_users() && ::unshare(CLONE_NEWUSER) != 0)
    throw Error(fmt::format("cannot create a user namespace for RUN: {}{}", why_no_user_namespace(errno),
                            errno == EPERM ? "; if this is a chroot, run the build outside it" : ""));
  std::string message(1, kInPlace);
  for (const std::vector<std::string>& place : made) {
    for (const std::string& each : place) message += each + '\0';
    message += '\0';
  }
  send_message(monitor.get(), message);
  if (receive_message(monitor.get()) != std::string(1, kGo)) ::_exit(1);
  // The change of credentials has cleared the parent-death signal.
  die_with_monitor(monitor);
  // The command may be root as well, and must not read the builder's memory.
  ::prctl(PR_SET_DUMPABLE, 0);
}

// Starts the command, waits for it, and kills the processes that it left behind. Returns the command's wait status.
// Throws Error if the command cannot be started.
int run_command(const SandboxStep& step, Fd output, Fd starter) {
  const UserIds user = step_user(step);
  make_working_directory(step);
  // The command's user must be able to open /dev/stderr.
  [[maybe_unused]] const int ignored = ::fchown(output.get(), user.user, user.group);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_call("cannot create a pipe");
  const Fd trouble(ends[0]);
  Fd trouble_end(ends[1]);
  const pid_t command = ::fork();
  if (command < 0) fail_call("cannot start a process");
  if (command == 0) {
    try {
      become_command(step, user, {output.get(), trouble_end.get(), starter.get()});
    } catch (const std::exception& error) {
      [[maybe_unused]] const ssize_t count = ::write(kTroubleFd, error.what(), std::strlen(error.what()));
    }
    ::_exit(127);
  }
  output.reset();
  trouble_end.reset();
  starter.reset();
  const std::string why = read_pipe(trouble.get());
  int status = 0, end = 0;
  for (pid_t ended = 0; ended != command;) {
    ended = ::waitpid(-1, &end, 0);
    if (ended == command) status = end;
    if (ended < 0 && errno == ECHILD) break;
  }
  ::kill(-1, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
  if (!why.empty()) throw Error(why);
  return status;
}

}  // namespace

void be_process_one(SandboxPlan plan, Fd monitor) {
  die_with_monitor(monitor);
  try {
    ::umask(022);
    if (::unshare(CLONE_NEWNS) != 0) fail_call("cannot create a mount namespace for RUN");
    EnteredRoot root = enter_root(*plan.step, plan.caches);
    leave_machine(monitor, root.made);
    const int status = run_command(*plan.step, std::move(plan.output), std::move(root.starter));
    send_message(monitor.get(), kEnded + std::string(reinterpret_cast<const char*>(&status), sizeof status));
  } catch (const std::exception& error) {
    send_message(monitor.get(), kFailed + std::string(error.what()));
  }
  ::_exit(0);
}

}  // namespace adaptdl::image
