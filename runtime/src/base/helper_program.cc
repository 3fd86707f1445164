#include "base/helper_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/socket.h"

namespace adaptdl {
namespace {

using End = HelperOutcome::End;
using net::Clock;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Returns a socket from which `input` can be read. If `input` does not fit into the socket's buffer, returns an invalid
// descriptor and sets errno.
Fd socket_with(const std::string& input) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Fd();
  const Fd write(ends[0]);
  Fd read(ends[1]);
  const ssize_t sent = ::send(write.get(), input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0 && static_cast<std::size_t>(sent) < input.size()) errno = EMSGSIZE;
  return sent == static_cast<ssize_t>(input.size()) ? std::move(read) : Fd();
}

// A started helper program. The destructor kills it unless it has ended.
class Process {
 public:
  ~Process() {
    if (pid_ < 0) return;
    ::kill(own_group_ ? -pid_ : pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // Returns 0, or the errno that explains why the start failed.
  int start(const HelperProgram& program) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
    output_ = Fd(ends[0]);
    const Fd output(ends[1]);
    const Fd input = program.input ? socket_with(*program.input) : Fd();
    if (program.input && !input) return errno;
    own_group_ = program.input.has_value();
    return spawn(program, input, output);
  }

  // Reads the helper's output to the end and waits until the helper has ended.
  HelperOutcome finish(Clock::time_point deadline, const std::stop_token& stop) {
    const auto is_over = [&] { return stop.stop_requested() || Clock::now() >= deadline; };
    HelperOutcome outcome{End::kExited, 0, ""};
    char buffer[4096];
    for (ssize_t count = -1; count != 0 && !is_over();) {
      pollfd readable{output_.get(), POLLIN, 0};
      if (::poll(&readable, 1, net::poll_timeout(deadline, 50)) <= 0) continue;
      count = ::read(output_.get(), buffer, sizeof buffer);
      if (count > 0) outcome.output.append(buffer, static_cast<std::size_t>(count));
      if (outcome.output.size() > kMaxHelperOutput) return {End::kTooMuch, 0, ""};
    }
    int status = 0;
    for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
      if (is_over()) return {stop.stop_requested() ? End::kStopped : End::kTimeOver, 0, ""};
      if (::waitpid(pid_, &status, WNOHANG) != 0) break;
      std::this_thread::sleep_for(pause);
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) return {End::kSignalled, WTERMSIG(status), ""};
    outcome.code = WEXITSTATUS(status);
    return outcome;
  }

 private:
  // The helper starts with default signal handlers and no blocked signals, regardless of this process's settings.
  int spawn(const HelperProgram& program, const Fd& input, const Fd& output) {
    std::vector<std::string> words = program.arguments;
    words.insert(words.begin(), program.name);
    std::vector<std::string> variables = program.environment.value_or(std::vector<std::string>());
    const std::vector<char*> arguments = pointers(words), environment = pointers(variables);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    if (input) ::posix_spawn_file_actions_adddup2(&actions, input.get(), 0);
    ::posix_spawn_file_actions_adddup2(&actions, output.get(), 1);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    const int group = own_group_ ? POSIX_SPAWN_SETPGROUP : 0;
    ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
    const int error = ::posix_spawnp(&pid_, program.name.c_str(), &actions, &attributes, arguments.data(),
                                     program.environment ? environment.data() : environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) pid_ = -1;
    return error;
  }

  pid_t pid_ = -1;
  bool own_group_ = false;
  Fd output_;
};

}  // namespace

HelperOutcome run_helper(const HelperProgram& program, std::chrono::milliseconds patience,
                         const std::stop_token& stop) {
  const auto deadline = Clock::now() + patience;
  Process process;
  if (const int error = process.start(program); error != 0) return {End::kNotStarted, error, ""};
  return process.finish(deadline, stop);
}

}  // namespace adaptdl
