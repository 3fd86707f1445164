#include "command/run/run_detach.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

constexpr int kUsage = 2;
constexpr int kFailed = 1;

// Closes the caller's terminal, pipes and files, so that a process that reads them to the end does not wait for the
// run. Only the descriptor `report` stays open.
void leave_terminal(int report) {
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  const int null = ::open("/dev/null", O_RDWR);
  if (null < 0) throw Error(fmt::format("cannot open /dev/null: {}", std::strerror(errno)));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  close_from(STDERR_FILENO + 1, report);
}

int child(StartReport report, const std::function<int(StartReport&)>& run) {
  try {
    leave_terminal(report.fd());
    return run(report);
  } catch (const UsageError& error) {
    report.failed(error.what(), kUsage);
    return kUsage;
  } catch (const std::exception& error) {
    report.failed(error.what(), kFailed);
    return kFailed;
  }
}

std::string read_all(const Fd& fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

int parent(pid_t pid, const Fd& from) {
  const auto report = nlohmann::json::parse(read_all(from), nullptr, false);
  if (report.is_object() && report.contains("started")) {
    print_out("{}\n", report["started"].get<std::string>());
    return 0;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!report.is_object())
    throw Error(fmt::format("the launcher died before the replicas started{}",
                            WIFSIGNALED(status) ? fmt::format(" (killed by signal {})", WTERMSIG(status)) : ""));
  const std::string why = report.value("failed", "");
  if (report.value("code", kFailed) == kUsage) throw UsageError(why);
  throw Error(why);
}

}  // namespace

void StartReport::started(const std::string& name) { say(nlohmann::json{{"started", name}}.dump()); }

void StartReport::failed(const std::string& why, int exit_code) {
  say(nlohmann::json{{"failed", why}, {"code", exit_code}}.dump(-1, ' ', false,
                                                                nlohmann::json::error_handler_t::replace));
}

void StartReport::say(const std::string& text) {
  if (to_) [[maybe_unused]]
    const ssize_t size = ::write(to_.get(), text.data(), text.size());
  to_.reset();
}

int run_detached(const std::function<int(StartReport&)>& run) {
  // The launcher must survive a write to a parent that was killed.
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe = make_pipe();
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(fmt::format("cannot start the launcher: {}", std::strerror(errno)));
  if (pid == 0) {
    pipe.read.reset();
    return child(StartReport(std::move(pipe.write)), run);
  }
  pipe.write.reset();
  return parent(pid, pipe.read);
}

}  // namespace adaptdl::cli
