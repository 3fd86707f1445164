#include "image/credential_helper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "adaptdl/error.h"
#include "http/http.h"
#include "image/one_line.h"
#include "socket.h"

namespace adaptdl::image {
namespace {

using net::Clock;
using net::Fd;
using nlohmann::json;
constexpr std::size_t kLargestAnswer = std::size_t{1} << 20;

bool is_helper_name(const std::string& name) {
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 0x7f && c != '/'; });
}

// A started helper, which has its question already; killed with what it started, unless it was waited for.
class Process {
 public:
  Process(const std::string& program, const std::string& question) {
    int input[2], output[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) fail(program, errno);
    Fd question_end(input[0]);
    const Fd input_end(input[1]);
    if (::pipe2(output, O_CLOEXEC) != 0) fail(program, errno);
    output_ = Fd(output[0]);
    const Fd output_end(output[1]);
    // It fits the socket's buffer, whether the helper reads it or not.
    if (::send(question_end.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) fail(program, errno);
    question_end.reset();
    start(program, input_end.get(), output_end.get());
  }
  ~Process() {
    if (pid_ < 0) return;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // All that it prints, until it closes its output. Null: the time is over.
  std::optional<std::string> read(Clock::time_point deadline, const std::stop_token& stop) {
    std::string text;
    char buffer[4096];
    while (Clock::now() < deadline && !stop.stop_requested()) {
      pollfd readable{output_.get(), POLLIN, 0};
      if (::poll(&readable, 1, net::poll_timeout(deadline, 50)) <= 0) continue;
      const ssize_t count = ::read(output_.get(), buffer, sizeof buffer);
      if (count == 0) return text;
      if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
      if (text.size() > kLargestAnswer) throw Error(fmt::format("it prints over {} MiB", kLargestAnswer >> 20));
    }
    return {};
  }
  // Its wait status. Null: the time is over.
  std::optional<int> wait(Clock::time_point deadline) {
    int status = 0;
    for (auto pause = std::chrono::milliseconds(1); ::waitpid(pid_, &status, WNOHANG) == 0; pause *= 2) {
      if (Clock::now() >= deadline) return {};
      std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(50)));
    }
    pid_ = -1;
    return status;
  }

 private:
  [[noreturn]] static void fail(const std::string& program, int error) {
    throw Error(error == ENOENT ? fmt::format("{} is not in the PATH", program)
                                : fmt::format("it cannot be started: {}", std::strerror(error)));
  }
  // A group of its own, so that a limit on its time holds for what it starts too.
  void start(const std::string& program, int input, int output) {
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string name = program, get = "get";
    char* const arguments[] = {name.data(), get.data(), nullptr};
    const int error = ::posix_spawnp(&pid_, program.c_str(), &actions, &attributes, arguments, environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return;
    pid_ = -1;
    fail(program, error);
  }

  pid_t pid_ = -1;
  Fd output_;
};

std::optional<Credentials> ask(const std::string& program, const std::string& server,
                               std::chrono::milliseconds patience, const std::stop_token& stop) {
  const auto deadline = Clock::now() + patience;
  Process process(program, server);
  const std::optional<std::string> text = process.read(deadline, stop);
  const std::optional<int> status = text ? process.wait(deadline) : std::nullopt;
  if (stop.stop_requested()) throw http::Stopped();
  if (!status) throw Error(fmt::format("it has not answered within {} ms", patience.count()));
  if (WIFSIGNALED(*status)) throw Error(fmt::format("it was ended by signal {}", WTERMSIG(*status)));
  if (WEXITSTATUS(*status) == 0) return parse_helper_answer(*text);
  const std::string why = one_line(*text, 300);
  if (why.find("credentials not found") != std::string::npos) return {};
  throw Error(fmt::format("it failed with exit code {}{}{}", WEXITSTATUS(*status), why.empty() ? "" : ": ", why));
}

}  // namespace

Credentials parse_helper_answer(const std::string& text) {
  const json answer = json::parse(text, nullptr, false);
  const auto at = [&](const char* key) {
    const auto found = answer.find(key);
    return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (!answer.is_object()) throw Error("it printed something else than credentials");
  Credentials credentials{at("Username"), at("Secret"), "", "", ""};
  if (credentials.user.empty() || credentials.password.empty())
    throw Error("it printed credentials without a Username or a Secret");
  if (credentials.user == "<token>") {
    credentials.identity_token = std::move(credentials.password);
    credentials.user.clear();
    credentials.password.clear();
  }
  return credentials;
}

std::optional<Credentials> ask_helper(const std::string& name, const std::string& server,
                                      std::chrono::milliseconds patience, const std::stop_token& stop) {
  const std::string program = "docker-credential-" + name;
  try {
    if (!is_helper_name(name)) throw Error("that is no name of a program");
    std::optional<Credentials> credentials = ask(program, server, patience, stop);
    if (credentials) credentials->source = program;
    return credentials;
  } catch (const http::Stopped&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("the credential helper {} for {}: {}", one_line(program, 200), server, error.what()));
  }
}

}  // namespace adaptdl::image
