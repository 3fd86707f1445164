#include "image/sandbox_init.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>

#include "adaptdl/error.h"
#include "image/sandbox_command.h"
#include "image/sandbox_root.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
using net::Fd;

void write_pipe(int file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
}

std::string read_pipe(int file) {
  std::string text;
  char buffer[512];
  for (ssize_t count; (count = ::read(file, buffer, sizeof buffer)) > 0 || (count < 0 && errno == EINTR);)
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
  Fd read, write;
};

// Other steps' threads have descriptors of their own, which must not stay open here.
void close_all_but(int one, int other) {
  const unsigned low = static_cast<unsigned>(std::min(one, other)), high = static_cast<unsigned>(std::max(one, other));
  if (low > 3) ::syscall(SYS_close_range, 3U, low - 1, 0);
  if (low + 1 < high) ::syscall(SYS_close_range, low + 1, high - 1, 0);
  ::syscall(SYS_close_range, high + 1, ~0U, 0);
}

void start_loopback() {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    throw Error(fmt::format("cannot start the loopback network: {}", std::strerror(errno)));
}

void enter_namespaces(Run::Network network) {
  const bool alone = network == Run::Network::kNone;
  if (::unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | (alone ? CLONE_NEWNET : 0)) != 0)
    throw Error(fmt::format("cannot make namespaces for RUN: {}", std::strerror(errno)));
  if (::sethostname(kSandboxHost, std::strlen(kSandboxHost)) != 0 || ::setdomainname("", 0) != 0)
    throw Error(fmt::format("cannot set the host name: {}", std::strerror(errno)));
  if (alone) start_loopback();
}

// Starts the command, waits until it ends, and ends all that it left behind. Returns its wait status. Throws Error if
// it could not be started.
int run_command(const SandboxStep& step, Fd output) {
  const UserIds user = step_user(step);
  if (!step.working_directory.empty()) fs::create_directories(step.working_directory);
  // So that it can open /dev/stderr.
  [[maybe_unused]] const int ignored = ::fchown(output.get(), user.user, user.group);
  Pipe trouble;
  const pid_t command = ::fork();
  if (command < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (command == 0) {
    try {
      become_command(step, user, output.get());
    } catch (const std::exception& error) {
      write_pipe(trouble.write.get(), error.what());
    }
    ::_exit(127);
  }
  output.reset();
  trouble.write.reset();
  const std::string why = read_pipe(trouble.read.get());
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

// Process 1 of the step.
[[noreturn]] void be_process_one(SandboxPlan plan, const Fd& keeper) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The keeper may have died before that, and its end of the pipe is closed.
  pollfd gone{keeper.get(), POLLIN, 0};
  if (::poll(&gone, 1, 0) != 0) ::_exit(1);
  try {
    ::umask(022);
    MountPoints points = enter_root(*plan.step, plan.caches);
    // The command may be root as well, and has no business in the builder's memory.
    ::prctl(PR_SET_DUMPABLE, 0);
    const int status = run_command(*plan.step, std::move(plan.output));
    points.remove();
    write_pipe(plan.report.get(), kEnded + std::string(reinterpret_cast<const char*>(&status), sizeof status));
  } catch (const std::exception& error) {
    write_pipe(plan.report.get(), std::string(1, kFailed) + error.what());
  }
  ::_exit(0);
}

}  // namespace

void keep_sandbox(SandboxPlan plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.builder) ::_exit(1);
  ::setsid();
  close_all_but(plan.output.get(), plan.report.get());
  ::signal(SIGCHLD, SIG_DFL);
  pid_t child = -1;
  std::optional<Pipe> alive;  // as long as this process
  try {
    enter_namespaces(plan.step->network);
    alive.emplace();
    child = ::fork();
    if (child < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
    if (child == 0) {
      alive->write.reset();
      be_process_one(std::move(plan), alive->read);
    }
  } catch (const std::exception& error) {
    write_pipe(plan.report.get(), std::string(1, kFailed) + error.what());
    ::_exit(0);
  }
  plan.output.reset();
  plan.report.reset();
  sigset_t awaited;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGCHLD);
  ::sigaddset(&awaited, SIGTERM);
  while (::waitpid(child, nullptr, WNOHANG) == 0)
    if (::sigwaitinfo(&awaited, nullptr) == SIGTERM) ::kill(child, SIGKILL);
  ::_exit(0);
}

}  // namespace adaptdl::image
