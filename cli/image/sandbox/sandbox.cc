#include "image/sandbox/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>

#include "adaptdl/error.h"
#include "http/http.h"
#include "image/base/open_rooted.h"
#include "image/layer/copy_tree.h"
#include "image/sandbox/build_namespace.h"
#include "image/sandbox/cache_mount.h"
#include "image/sandbox/sandbox_monitor.h"
#include "image/sandbox/seccomp_filter.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxLineLength = std::size_t{16} << 10;
constexpr std::size_t kMaxReportLength = std::size_t{64} << 10;

struct OutputPipe {
  OutputPipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot create a pipe: {}", ::strerror(errno)));
    read = Fd(ends[0]);
    write = Fd(ends[1]);
    ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
  }
  Fd read, write;
};

// Splits the output into lines.
class LineCutter {
 public:
  explicit LineCutter(const OnStepLine& on_line) : on_line_(on_line) {}
  void feed(std::string_view bytes) {
    for (std::size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
      line_ += bytes.substr(0, end);
      give();
    }
    line_ += bytes;
    if (line_.size() >= kMaxLineLength) give();
  }
  void finish() {
    if (!line_.empty()) give();
  }

 private:
  void give() {
    const std::string line = std::exchange(line_, "");
    if (on_line_) on_line_(line.ends_with('\r') ? std::string_view(line).substr(0, line.size() - 1) : line);
  }
  const OnStepLine& on_line_;
  std::string line_;
};

// A sandbox's monitor. The destructor stops the monitor and the sandbox.
class Monitor {
 public:
  explicit Monitor(SandboxPlan plan) {
    plan.builder = ::getpid();
    // This process's signal handlers must not run in the child.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_ = ::fork();
    if (pid_ == 0) monitor_sandbox(std::move(plan));
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (pid_ < 0) throw Error(fmt::format("cannot start a process: {}", ::strerror(error)));
    end_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Monitor() {
    stop();
    wait();
  }
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Requests that the monitor kill all processes; the monitor ends when they have ended.
  void stop() {
    if (pid_ > 0) ::kill(pid_, SIGTERM);
  }
  void wait() {
    while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  int end() const { return end_.get(); }  // readable when the monitor has ended

 private:
  pid_t pid_ = -1;
  Fd end_;
};

// Passes all available bytes to `take`. Returns false at the end of the stream.
bool drain(const Fd& file, const std::function<void(std::string_view)>& take) {
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count > 0) take({buffer, static_cast<std::size_t>(count)});
    if (count == 0) return false;
    if (count < 0 && errno != EINTR) return errno == EAGAIN;
  }
}

StepEnd end_of(const std::string& report) {
  if (report.starts_with(kFailed)) throw Error(report.substr(1));
  int status = 0;
  if (report.size() != 1 + sizeof status) throw Error("the command's processes were killed from outside the build");
  std::memcpy(&status, report.data() + 1, sizeof status);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

StepEnd run(SandboxPlan plan, const OnStepLine& on_line, const std::stop_token& stop) {
  OutputPipe output, report;
  const Fd wake(::eventfd(0, EFD_CLOEXEC));
  plan.output = std::move(output.write);
  plan.report = std::move(report.write);
  Monitor monitor(std::move(plan));
  const std::stop_callback on_stop(stop, [&] { ::eventfd_write(wake.get(), 1); });
  LineCutter lines(on_line);
  std::string reported;
  const auto read_all = [&] {
    const bool open = drain(output.read, [&](std::string_view bytes) { lines.feed(bytes); });
    drain(report.read,
          [&](std::string_view bytes) { reported += bytes.substr(0, kMaxReportLength - reported.size()); });
    return open;
  };
  bool open = true;
  for (pollfd events[3]{{monitor.end(), POLLIN, 0}, {wake.get(), POLLIN, 0}, {output.read.get(), POLLIN, 0}};;) {
    events[2].fd = open ? output.read.get() : -1;
    if (::poll(events, 3, -1) < 0 && errno != EINTR)
      throw Error(fmt::format("cannot wait for the sandbox: {}", ::strerror(errno)));
    if (events[1].revents != 0) throw http::Stopped();
    open = read_all() && open;
    if (events[0].revents != 0) break;
  }
  monitor.wait();
  read_all();
  lines.finish();
  return end_of(reported);
}

// The step's cache mounts. Each mount is locked once, in the same order in all steps, so that steps cannot deadlock.
class Caches {
 public:
  Caches(const SandboxStep& step, const std::stop_token& stop) {
    std::vector<const StepMount*> mounts;
    for (const StepMount& mount : step.mounts)
      if (mount.mount.type == Mount::Type::kCache) mounts.push_back(&mount);
    directories_.resize(mounts.size());
    std::vector<std::size_t> order(mounts.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](std::size_t i) {
      return std::tie(mounts[i]->mount.id, mounts[i]->mount.from, mounts[i]->mount.source);
    };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || key(order[i]) != key(order[i - 1])) take(step, *mounts[order[i]], stop);
      directories_[order[i]] = held_.back().directory();
    }
  }
  const std::vector<std::string>& directories() const { return directories_; }

 private:
  void take(const SandboxStep& step, const StepMount& mount, const std::stop_token& stop) {
    const auto fill = [&](const fs::path& directory) {
      const Overlay view({mount.from, "", ""}, step.scratch / "cache");
      const Fd source = open_inside(view.path(), mount.mount.source);
      Fd to(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!to) throw Error(fmt::format("{}: {}", directory.string(), ::strerror(errno)));
      copy_tree(source, std::move(to));
    };
    held_.emplace_back(step.caches, mount.mount, stop,
                       mount.from.empty() ? std::function<void(const fs::path&)>() : fill);
  }

  std::deque<CacheMount> held_;
  std::vector<std::string> directories_;
};

// The processes in the sandbox change their working directory, so paths must be absolute.
SandboxStep with_absolute_paths(SandboxStep step) {
  for (fs::path* path : {&step.root.upper, &step.root.work, &step.scratch, &step.caches})
    if (!path->empty()) *path = fs::absolute(*path);
  for (fs::path& path : step.root.lower) path = fs::absolute(path);
  for (StepMount& mount : step.mounts)
    for (fs::path& path : mount.from) path = fs::absolute(path);
  return step;
}

}  // namespace

std::string StepEnd::text() const {
  if (signal == 0) return fmt::format("exit code {}", exit_code);
  return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
}

StepEnd run_in_sandbox(const SandboxStep& given, const OnStepLine& on_line, const std::stop_token& stop) {
  require_build_namespace("execute RUN");
  if (given.command.empty()) throw Error("the command is empty");
  const SandboxStep step = with_absolute_paths(given);
  const Caches caches(step, stop);
  step_filter();  // built once, not by every step's process
  SandboxPlan plan;
  plan.step = &step;
  plan.caches = caches.directories();
  return run(std::move(plan), on_line, stop);
}

}  // namespace adaptdl::image
