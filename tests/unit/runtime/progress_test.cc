#include "adaptdl/progress.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "process_support.h"

namespace progress_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using adaptdl::testing::Process;
using nlohmann::json;

namespace {

constexpr int kFd = 9;

void report_to(int fd) { ::setenv("ADAPTDL_STATUS_FD", std::to_string(fd).c_str(), 1); }

// Writes far more than any pipe or socket can hold. Never returns if progress::event waits for a reader.
void flood() {
  for (int i = 0; i < 5000; ++i) progress::event("flood", {{"path", std::string(1000, 'x')}});
}

}  // namespace

TEST_CASE("a report is one line of JSON with the latest values") {
  Process process(kFd, [] {
    report_to(kFd);
    progress::set("epoch", 3);
    progress::set("loss", 2.5);
    progress::set("loss", 0.5);
    progress::set("samples_per_s", std::nan(""));
    progress::report();
    return 0;
  });
  CHECK(json::parse(process.line()) == json{{"epoch", 3}, {"loss", 0.5}, {"samples_per_s", nullptr}});
  CHECK(process.rest() == "");
}

TEST_CASE("events are not rate-limited, and an event too long for an atomic write is dropped") {
  Process process(kFd, [] {
    report_to(kFd);
    progress::report();
    progress::event("checkpoint", {{"path", "/a\nb\xff"}});
    progress::event("checkpoint", {{"path", std::string(5000, 'x')}});  // longer than an atomic write to a pipe
    progress::event("done", nullptr);
    return 0;
  });
  CHECK(process.line() == "{}");
  CHECK(json::parse(process.line()) == json{{"event", "checkpoint"}, {"path", "/a\nb\ufffd"}});
  CHECK(process.line() == "{\"event\":\"done\"}");
  CHECK(process.rest() == "");
}

TEST_CASE("at most ten reports per second are written") {
  Process process(kFd, [] {
    report_to(kFd);
    const auto end = std::chrono::steady_clock::now() + 350ms;
    for (int i = 0; std::chrono::steady_clock::now() < end; ++i) {
      progress::set("step", i);
      progress::report();
    }
    return 0;
  });
  const std::string lines = process.rest();
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  CHECK(count >= 1);  // usually more, unless the process gets little CPU time
  CHECK(count <= 5);
}

TEST_CASE("reports of concurrent threads are complete lines") {
  Process process(kFd, [] {
    report_to(kFd);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([thread] {
        for (int i = 0; i < 100; ++i) {
          progress::set("step", i);
          progress::report();
          progress::event("thread", {{"number", thread}, {"text", std::string(100, 'x')}});
        }
      });
    for (std::thread& thread : threads) thread.join();
    return 0;
  });
  for (std::string line = process.line(); !line.empty(); line = process.line()) CHECK(json::accept(line));
}

TEST_CASE("if the pipe is full, lines are dropped instead of blocking the program, and written lines are complete") {
  Process process(kFd, [] {
    report_to(kFd);
    flood();
    return (::fcntl(kFd, F_GETFL) & O_NONBLOCK) == 0 ? 0 : 1;  // the launcher's descriptor is unchanged
  });
  CHECK(process.join() == 0);
  int whole = 0;
  for (std::string line = process.line(); !line.empty(); line = process.line(), ++whole) REQUIRE(json::accept(line));
  CHECK(whole > 10);
}

TEST_CASE("if the socket is full, lines are dropped instead of blocking the program") {
  Process process(STDERR_FILENO, [] {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
    report_to(ends[0]);
    flood();
    return 0;
  });
  CHECK(process.join() == 0);
}

TEST_CASE("events are discarded silently if the launcher is gone or there is none") {
  Process process(STDERR_FILENO, [] {
    int ends[2];
    if (::pipe(ends) != 0) return 2;
    ::close(ends[0]);
    report_to(ends[1]);
    progress::event("nobody reads", json::object());
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
    ::close(ends[0]);
    report_to(ends[1]);
    progress::event("nobody reads", json::object());
    report_to(1234);
    progress::event("no such descriptor", json::object());
    ::unsetenv("ADAPTDL_STATUS_FD");
    progress::event("no variable", json::object());
    progress::report();
    struct sigaction action {};
    ::sigaction(SIGPIPE, nullptr, &action);
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return action.sa_handler == SIG_DFL && !sigismember(&blocked, SIGPIPE) ? 0 : 1;
  });
  CHECK(process.rest() == "");
  CHECK(process.join() == 0);
}

TEST_CASE("an invalid descriptor causes a single warning and disables reports") {
  Process process(STDERR_FILENO, [] {
    ::setenv("ADAPTDL_STATUS_FD", "x", 1);
    for (int i = 0; i < 3; ++i) progress::event("e", json::object());
    return 0;
  });
  CHECK(process.rest() ==
        "adaptdl: warning: cannot report progress: ADAPTDL_STATUS_FD must be an integer of at least 0, not 'x'\n");
}

}  // namespace progress_test
