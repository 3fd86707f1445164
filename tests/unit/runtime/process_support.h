// A child process whose standard error, or another descriptor, a test can read.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <utility>

namespace adaptdl::testing {

class Process {
 public:
  // Runs `body` in a child. The test can read what the child writes to descriptor `captured`, such as STDERR_FILENO.
  Process(int captured, const std::function<int()>& body) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    std::fflush(nullptr);
    std::cout.flush();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], captured);
      ::_exit(body());
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  // Reads until the output contains `text`. Returns false at the end of the output, or after a minute of silence.
  bool await(const std::string& text) {
    while (seen_.find(text) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }
  // Returns the next line without its line feed, or "" at the end of the output.
  std::string line() {
    while (seen_.find('\n') == std::string::npos)
      if (!read_some()) return "";
    const auto end = seen_.find('\n');
    const std::string line = seen_.substr(0, end);
    seen_.erase(0, end + 1);
    return line;
  }
  // Returns the rest of the output, until the process exits.
  std::string rest() {
    while (read_some()) {
    }
    return seen_;
  }
  // Waits for the process to exit, and returns its exit status, or minus the signal that killed it.
  int join() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  static constexpr int kPatience = 60000;  // ms of silence; far longer than the code under test ever waits

  bool read_some() {
    pollfd readable{output_, POLLIN, 0};
    char buffer[4096];
    if (::poll(&readable, 1, kPatience) != 1) return false;
    const ssize_t count = ::read(output_, buffer, sizeof buffer);
    if (count > 0) seen_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }

  pid_t pid_ = -1;
  int output_ = -1;
  std::string seen_;
};

}  // namespace adaptdl::testing
