// Replicas for the tests of collective calls: as threads of the test, and as processes that can be killed.
#pragma once

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adaptdl/collective.h"

namespace doctest {

template <>
struct StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& texts) { return fmt::format("{}", texts).c_str(); }
};

}  // namespace doctest

namespace adaptdl::collective::testing {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The timeouts suit slow machines and sanitizers, but are far shorter than the half hour of a real job.
inline Options test_options(int size) {
  Options options;
  options.size = size;
  options.connect_timeout = 30s;
  options.timeout = 100s;
  return options;
}

// Returns the message of the exception that `action` throws, or "".
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
    return "";
  } catch (const std::exception& error) {
    return *error.what() ? error.what() : "an error without a text";
  }
}

inline void check_contains(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

inline Bytes join(Bytes accumulated, const Bytes& next) { return accumulated + next; }

using Body = std::function<void(Communicator&)>;

// The timeout of the replicas other than rank 0, if it differs from rank 0's. With different timeouts, one end reports
// its error before the other gives up, even if a thread is scheduled late.
using PeerTimeout = std::optional<std::chrono::milliseconds>;

// Runs `body` on all replicas, each in a thread, and returns the message that each rank threw, or "".
inline std::vector<std::string> run_threads(Options options, const Body& body, PeerTimeout peer_timeout = {}) {
  std::promise<std::uint16_t> listening;
  const std::shared_future<std::uint16_t> port = listening.get_future().share();
  std::vector<std::string> errors(static_cast<std::size_t>(options.size));
  std::vector<std::thread> replicas;
  for (int rank = 0; rank < options.size; ++rank) {
    replicas.emplace_back([&, rank, own = options]() mutable {
      own.rank = rank;
      bool listens = false;
      errors[static_cast<std::size_t>(rank)] = error_of([&] {
        if (rank > 0) own.master_port = port.get();
        if (rank > 0) own.timeout = peer_timeout.value_or(own.timeout);
        Communicator communicator(own, [&](std::uint16_t bound) {
          listens = true;
          listening.set_value(bound);
        });
        body(communicator);
      });
      if (rank == 0 && own.size > 1 && !listens) listening.set_value(1);
    });
  }
  for (std::thread& replica : replicas) replica.join();
  return errors;
}

inline std::vector<std::string> run_threads(int size, const Body& body) {
  return run_threads(test_options(size), body);
}

inline std::vector<std::string> no_errors(int size) { return std::vector<std::string>(static_cast<std::size_t>(size)); }

inline std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

// A replica in its own process. It sends lines to the test, and waits for the test where necessary.
class Child {
 public:
  // The methods that the body of a replica can use.
  class Test {
   public:
    Test(int say, int go) : say_(say), go_(go) {}
    void say(const std::string& line) const {
      const std::string text = line + "\n";
      if (::write(say_, text.data(), text.size()) < 0) ::_exit(99);
    }
    void await_go() const {
      char byte = 0;
      if (::read(go_, &byte, 1) != 1) ::_exit(98);
    }
    // Sends "error MILLISECONDS TEXT" with the time at which `action` threw, or "no error".
    template <typename Action>
    void say_error(Action&& action) const {
      const std::string error = error_of(action);
      say(error.empty() ? "no error" : fmt::format("error {} {}", now_ms(), error));
    }

   private:
    int say_, go_;
  };

  explicit Child(const std::function<void(const Test&)>& body) {
    int say[2], go[2];
    if (::pipe(say) != 0 || ::pipe(go) != 0) std::abort();
    std::fflush(nullptr);
    std::cout.flush();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(say[0]);
      ::close(go[1]);
      const Test test(say[1], go[0]);
      const std::string error = error_of([&] { body(test); });
      if (!error.empty()) test.say(fmt::format("error {} {}", now_ms(), error));
      ::_exit(error.empty() ? 0 : 1);
    }
    ::close(say[1]);
    ::close(go[0]);
    say_ = say[0];
    go_ = go[1];
  }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        say_(std::exchange(other.say_, -1)),
        go_(std::exchange(other.go_, -1)),
        heard_(std::move(other.heard_)) {}
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (say_ >= 0) ::close(say_);
    if (go_ >= 0) ::close(go_);
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  void go() const {
    if (::write(go_, "g", 1) != 1) std::abort();
  }
  // Returns the next line; "(silence)" after `patience`, "(end)" once the child has exited.
  std::string read_line(std::chrono::milliseconds patience = 30s) {
    const auto deadline = Clock::now() + patience;
    for (;;) {
      const auto end = heard_.find('\n');
      if (end != std::string::npos) {
        const std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd readable{say_, POLLIN, 0};
      if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) == 0) return "(silence)";
      char buffer[4096];
      const ssize_t count = ::read(say_, buffer, sizeof buffer);
      if (count <= 0) return "(end)";
      heard_.append(buffer, static_cast<std::size_t>(count));
    }
  }
  // Waits for the child to exit, and returns its exit status, or minus the signal that killed it.
  int join() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int say_ = -1, go_ = -1;
  std::string heard_;
};

// Starts all replicas of a job as processes, each of which connects and runs `body`.
inline std::vector<Child> start_processes(Options options,
                                          const std::function<void(Communicator&, const Child::Test&)>& body,
                                          PeerTimeout peer_timeout = {}) {
  std::vector<Child> children;
  for (int rank = 0; rank < options.size; ++rank) {
    options.rank = rank;
    if (rank > 0) options.timeout = peer_timeout.value_or(options.timeout);
    children.emplace_back([&](const Child::Test& test) {
      Communicator communicator(options, [&](std::uint16_t port) { test.say(std::to_string(port)); });
      body(communicator, test);
    });
    if (rank == 0) options.master_port = static_cast<std::uint16_t>(std::stoi(children[0].read_line()));
  }
  return children;
}

}  // namespace adaptdl::collective::testing
