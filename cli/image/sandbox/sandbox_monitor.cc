#include "image/sandbox/sandbox_monitor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>

#include "adaptdl/error.h"
#include "image/base/failed_call.h"
#include "image/layer/id_map.h"
#include "image/sandbox/build_namespace.h"
#include "image/sandbox/mount_points.h"
#include "image/sandbox/sandbox_init.h"
#include "image/sandbox/sandbox_root.h"

namespace adaptdl::image {
namespace {

void write_all(int file, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(file, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_call("cannot write to a sandbox pipe");
    data += count;
    size -= static_cast<std::size_t>(count);
  }
}

// Returns false at the end of the channel.
bool read_all(int file, char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::read(file, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

// Descriptors that belong to other threads' steps must not stay open here.
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
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) fail_call("cannot bring up the loopback interface");
  // As in Docker, every user may bind low ports and ping. In a container these settings may be read-only.
  for (const auto& [name, value] :
       {std::pair{"ip_unprivileged_port_start", "0"}, {"ping_group_range", "0 2147483647"}}) {
    const Fd setting(::open(fmt::format("/proc/sys/net/ipv4/{}", name).c_str(), O_WRONLY | O_CLOEXEC));
    [[maybe_unused]] const ssize_t ignored = ::write(setting.get(), value, std::strlen(value));
  }
}

void enter_namespaces(Run::Network network) {
  const bool alone = network == Run::Network::kNone;
  // The command must not find the builder's keys. ENOSYS means that the kernel does not support keyrings.
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS)
    fail_call("cannot create a session keyring for RUN");
  if (::unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | (alone ? CLONE_NEWNET : 0)) != 0)
    fail_call("cannot create namespaces for RUN");
  if (::sethostname(kSandboxHost, std::strlen(kSandboxHost)) != 0 || ::setdomainname("", 0) != 0)
    fail_call("cannot set the host name");
  if (alone) start_loopback();
}

MadePaths made_paths(const std::string& message) {
  MadePaths made(1);
  for (std::size_t at = 1; at < message.size();) {
    const std::size_t end = message.find('\0', at);
    if (end == at)
      made.emplace_back();
    else
      made.back().push_back(message.substr(at, end - at));
    at = end + 1;
  }
  return made;
}

Fd open_directory(const std::string& path) {
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) fail_call(path);
  return directory;
}

class SandboxMonitor {
 public:
  explicit SandboxMonitor(SandboxPlan plan) : plan_(std::move(plan)) {}

  // Returns the report.
  std::string run() {
    try {
      enter_namespaces(plan_.step->network);
      start();
    } catch (const std::exception& error) {
      return kFailed + std::string(error.what());
    }
    std::string report = listen();
    ::kill(child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    // No process is left in the sandbox, and its mounts are gone with its mount namespace.
    for (MountTraces& traces : traces_) traces.remove();
    return report;
  }

 private:
  void start() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail_call("cannot create a socket");
    Fd inside(ends[1]);
    channel_ = Fd(ends[0]);
    child_ = ::fork();
    if (child_ < 0) fail_call("cannot start a process");
    if (child_ == 0) {
      channel_.reset();
      plan_.report.reset();
      be_process_one(std::move(plan_), std::move(inside));
    }
    plan_.output.reset();
  }

  // Returns process 1's report, or "" if process 1 dies or the builder requests a stop.
  std::string listen() {
    sigset_t stop;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTERM);
    const Fd stopped(::signalfd(-1, &stop, SFD_CLOEXEC));
    for (pollfd events[2]{{channel_.get(), POLLIN, 0}, {stopped.get(), POLLIN, 0}};;) {
      if (::poll(events, 2, -1) < 0) continue;
      if (events[1].revents != 0) return "";
      const std::string message = receive_message(channel_.get());
      if (!message.starts_with(kInPlace)) return message;
      try {
        mounted(message);
      } catch (const std::exception& error) {
        return kFailed + std::string(error.what());
      }
    }
  }

  void mounted(const std::string& message) {
    const MadePaths made = made_paths(message);
    traces_.emplace_back(open_directory(plan_.step->root.upper), made[0]);
    for (std::size_t i = 0; i < plan_.caches.size(); ++i)
      if (!made.at(i + 1).empty())
        traces_.push_back(MountTraces::in_directory(open_directory(plan_.caches[i]), made[i + 1]));
    if (!has_own_users() && !map_own_ids(child_)) throw Error("cannot map IDs in the user namespace for RUN");
    send_message(channel_.get(), std::string(1, kGo));
  }

  SandboxPlan plan_;
  Fd channel_;
  pid_t child_ = -1;
  std::vector<MountTraces> traces_;
};

}  // namespace

void send_message(int channel, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  write_all(channel, reinterpret_cast<const char*>(&size), sizeof size);
  write_all(channel, text.data(), text.size());
}

std::string receive_message(int channel) {
  std::uint32_t size = 0;
  if (!read_all(channel, reinterpret_cast<char*>(&size), sizeof size)) return "";
  std::string text(size, '\0');
  return read_all(channel, text.data(), text.size()) ? text : "";
}

void monitor_sandbox(SandboxPlan plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.builder) ::_exit(1);
  ::setsid();
  close_all_but(plan.output.get(), plan.report.get());
  ::signal(SIGCHLD, SIG_DFL);
  const Fd report = std::move(plan.report);
  try {
    const std::string text = SandboxMonitor(std::move(plan)).run();
    write_all(report.get(), text.data(), text.size());
  } catch (const std::exception&) {
    // If there is no report, the builder reports that the sandbox was killed.
  }
  ::_exit(0);
}

}  // namespace adaptdl::image
