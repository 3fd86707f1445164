#include "tuner/python_helper.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "local/base/program.h"
#include "local/replica/replica_environment.h"
#include "tune/study/python_json.h"

namespace adaptdl::sched::tune {
namespace {

using std::chrono::steady_clock;

constexpr int kLookForSignalsEvery = 100;  // ms
// How long a helper that has closed its output may take to end.
constexpr std::chrono::seconds kTimeToEnd{5};
constexpr std::size_t kMaxAnswer = std::size_t{256} << 20;  // bytes; it may contain the pickled state of a sampler

struct HelperStart {
  const char* program;
  char* const* arguments;
  int socket, errors, failure;
  pid_t parent;
};

// Runs between fork and exec, where only async-signal-safe functions may be called.
[[noreturn]] void become_helper(const HelperStart& start) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::_exit(1);  // the parent died before prctl()
  if (::dup2(start.socket, STDIN_FILENO) < 0 || ::dup2(start.socket, STDOUT_FILENO) < 0 ||
      ::dup2(start.errors, STDERR_FILENO) < 0)
    ::_exit(1);
  close_on_exec_from(STDERR_FILENO + 1);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(start.program, start.arguments, environ);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(start.failure, &error, sizeof error);
  ::_exit(127);
}

std::pair<Fd, Fd> make_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(fmt::format("cannot create a socket: {}", std::strerror(errno)));
  return {Fd(ends[0]), Fd(ends[1])};
}

std::filesystem::path helper_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  return find_program(name, path == nullptr ? "" : path);
}

// A blocked signal may be pending although it is ignored, for example SIGHUP under nohup(1).
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool is_stop_pending() {
  sigset_t pending;
  if (::sigpending(&pending) != 0) return false;
  return std::ranges::any_of(std::array{SIGINT, SIGTERM, SIGHUP}, [&pending](int signal) {
    return ::sigismember(&pending, signal) == 1 && !is_ignored(signal);
  });
}

}  // namespace

PythonHelper::PythonHelper(const std::vector<std::string>& command, std::chrono::milliseconds grace) : grace_(grace) {
  const std::filesystem::path program = helper_program(command.at(0));
  auto [own, other] = make_sockets();
  Pipe errors = make_pipe(), failure = make_pipe();
  set_nonblocking(errors.read);
  const auto arguments = to_pointers(command);
  const HelperStart start{.program = program.c_str(),
                          .arguments = arguments.data(),
                          .socket = other.get(),
                          .errors = errors.write.get(),
                          .failure = failure.write.get(),
                          .parent = ::getpid()};
  pid_ = ::fork();
  if (pid_ < 0) throw Error(fmt::format("cannot start '{}': {}", program.string(), std::strerror(errno)));
  if (pid_ == 0) become_helper(start);
  failure.write.reset();
  int error = 0;
  ssize_t size = 0;
  do {
    size = ::read(failure.read.get(), &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  socket_ = std::move(own);
  errors_ = std::move(errors.read);
  if (size != sizeof error) return;
  end();
  throw Error(fmt::format("cannot run '{}': {}", program.string(), std::strerror(error)));
}

PythonHelper::~PythonHelper() { end(); }

// Kills the helper if it has not ended, and returns its exit status.
int PythonHelper::end() {
  if (pid_ < 0) return 0;
  const pid_t pid = std::exchange(pid_, -1);
  ::kill(-pid, SIGKILL);
  ::kill(pid, SIGKILL);  // it may not have called setsid() yet
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

nlohmann::json PythonHelper::ask(const nlohmann::json& request) {
  signalled_.reset();
  to_send_ += to_python_json(request) + '\n';
  return receive();
}

nlohmann::json PythonHelper::receive() {
  if (pid_ < 0) throw Error("the helper process has ended");
  std::size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) wait();
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  nlohmann::json answer;
  try {
    PythonJsonReader reader(line);
    answer = reader.value();
    reader.end();
  } catch (const Error&) {
    answer = nullptr;
  }
  if (!answer.is_object())
    throw Error(fmt::format("the helper process sent '{}' instead of a JSON object", one_line(line, 100)));
  return answer;
}

// Waits briefly until data can be sent or received, transfers it, and checks for stop signals.
void PythonHelper::wait() {
  const short events = to_send_.empty() ? POLLIN : POLLIN | POLLOUT;
  std::array<pollfd, 2> ready{{{socket_.get(), events, 0}, {errors_.get(), POLLIN, 0}}};
  if (::poll(ready.data(), ready.size(), kLookForSignalsEvery) > 0) {
    // Standard error is read first, because a helper that fills the pipe would block before it answers.
    if (ready[1].revents != 0) read_errors();
    if ((ready[0].revents & POLLOUT) != 0) send_some();
    if ((ready[0].revents & ~POLLOUT) != 0) receive_some();
  }
  check_signals();
}

void PythonHelper::send_some() {
  const ssize_t sent = ::send(socket_.get(), to_send_.data(), to_send_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) to_send_.erase(0, static_cast<std::size_t>(sent));
  // The helper has ended, but the data that it has already sent must still be read.
  if (sent < 0 && errno == EPIPE) to_send_.clear();
}

void PythonHelper::receive_some() {
  std::array<char, 65536> buffer;
  const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) fail_ended();
  received_.append(buffer.data(), static_cast<std::size_t>(size));
  if (received_.size() > kMaxAnswer) throw Error("the helper process sent a line that is too long");
}

void PythonHelper::read_errors() {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(errors_.get(), buffer.data(), buffer.size());
  if (size == 0) errors_.reset();
  if (size <= 0) return;
  error_lines_.feed({buffer.data(), static_cast<std::size_t>(size)},
                    [this](std::string_view text, bool) { last_errors_.add(text); });
}

void PythonHelper::check_signals() {
  if (!is_stop_pending()) return signalled_.reset();
  const auto now = steady_clock::now();
  if (!signalled_) signalled_ = now;
  if (now - *signalled_ < grace_) return;
  end();
  throw HelperInterrupted();
}

void PythonHelper::fail_ended() {
  const auto deadline = steady_clock::now() + kTimeToEnd;
  while (errors_ && steady_clock::now() < deadline) {
    pollfd readable{errors_.get(), POLLIN, 0};
    if (::poll(&readable, 1, kLookForSignalsEvery) > 0) read_errors();
  }
  error_lines_.finish([this](std::string_view text, bool) { last_errors_.add(text); });
  siginfo_t info{};
  bool has_ended = false;
  do {
    has_ended =
        ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
    if (!has_ended) ::poll(nullptr, 0, 1);
  } while (!has_ended && steady_clock::now() < deadline);
  const int status = end();
  std::string how = "closed its output";
  if (has_ended)
    how = WIFSIGNALED(status) ? fmt::format("was killed by SIG{}", ::sigabbrev_np(WTERMSIG(status)))
                              : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  const std::string last = last_error();
  throw Error(fmt::format("the helper process {}{}{}", how, last.empty() ? "" : ": ", last));
}

// Returns the last nonempty line of standard error.
std::string PythonHelper::last_error() const {
  std::string last;
  for (const std::string& line : last_errors_.get())
    if (std::string text = one_line(line, 300); !text.empty()) last = std::move(text);
  return last;
}

}  // namespace adaptdl::sched::tune
