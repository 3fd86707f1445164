// Tests signal handling with real processes and real signals.
#include "adaptdl/signal.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "process_support.h"
#include "sanitizer.h"

namespace signal_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using adaptdl::testing::Process;

namespace {

void say(const std::string& line) {
  if (::write(STDERR_FILENO, (line + "\n").data(), line.size() + 1) < 0) ::_exit(99);
}

// Prints each change of stop_signal() until SIGKILL.
int watch() {
  say("ready");
  for (int before = 0;;) {
    const int now = signal::stop_signal();
    if (now != before) say("stop " + std::to_string(now));
    before = now;
    std::this_thread::sleep_for(1ms);
  }
}

int install_and_watch() {
  signal::install();
  signal::install();
  return watch();
}

const std::string kInterruptLine =
    "adaptdl: SIGINT: checkpointing at the next step; interrupt again to end immediately\n";
const std::string kTerminateLine = "adaptdl: SIGTERM: checkpointing at the next step\n";

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("the first SIGINT requests a stop and reports it, and the second terminates the process") {
  Process process(STDERR_FILENO, install_and_watch);
  REQUIRE(process.await("ready"));
  process.signal(SIGINT);
  REQUIRE(process.await(kInterruptLine));
  REQUIRE(process.await("stop 2\n"));
  process.signal(SIGINT);
  CHECK(count(process.rest(), "SIGINT") == 1);
  CHECK(process.join() == -SIGINT);
}

TEST_CASE("SIGTERM requests a stop, is reported once and never terminates the process") {
  Process process(STDERR_FILENO, install_and_watch);
  REQUIRE(process.await("ready"));
  for (int i = 0; i < 3; ++i) {
    process.signal(SIGTERM);
    REQUIRE(process.await("stop 15\n"));
    std::this_thread::sleep_for(20ms);
  }
  process.signal(SIGKILL);
  CHECK(count(process.rest(), kTerminateLine) == 1);
  CHECK(process.join() == -SIGKILL);
}

TEST_CASE("after SIGTERM, only the second SIGINT terminates the process") {
  Process process(STDERR_FILENO, install_and_watch);
  REQUIRE(process.await("ready"));
  process.signal(SIGTERM);
  REQUIRE(process.await("stop 15\n"));
  process.signal(SIGINT);
  REQUIRE(process.await(kInterruptLine));
  process.signal(SIGINT);
  CHECK(process.join() == -SIGINT);
}

TEST_CASE("a second SIGINT terminates a process blocked in a call") {
  Process process(STDERR_FILENO, [] {
    signal::install();
    say("ready");
    for (;;) std::this_thread::sleep_for(1h);
    return 0;
  });
  REQUIRE(process.await("ready"));
  process.signal(SIGINT);
  REQUIRE(process.await(kInterruptLine));
  process.signal(SIGINT);
  CHECK(process.join() == -SIGINT);
}

TEST_CASE("a stop requested by the program does not count as the first SIGINT") {
  Process process(STDERR_FILENO, [] {
    signal::install();
    signal::request_stop(SIGINT);
    signal::request_stop(SIGTERM);
    return watch();
  });
  REQUIRE(process.await("stop 2\n"));  // the first request is kept
  process.signal(SIGINT);
  REQUIRE(process.await(kInterruptLine));
  process.signal(SIGINT);
  CHECK(process.join() == -SIGINT);
}

TEST_CASE("signals are handled on any thread") {
  Process process(STDERR_FILENO, [] {
    signal::install();
    std::atomic<bool> running = false;
    std::thread thread([&] {
      running = true;
      for (;;) std::this_thread::sleep_for(1ms);
    });
    // ThreadSanitizer loses a signal that arrives before its own initialization of the thread is complete.
    while (!running) std::this_thread::sleep_for(1ms);
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // this thread receives no signals
    return watch();
  });
  REQUIRE(process.await("ready"));
  process.signal(SIGINT);
  REQUIRE(process.await("stop 2\n"));
  process.signal(SIGINT);
  CHECK(process.join() == -SIGINT);
}

// ThreadSanitizer delays a handler until the system call returns, but here the call waits for the handler.
TEST_CASE("signals do not interrupt system calls or change errno" * doctest::skip(sanitizer::kThread)) {
  Process process(STDERR_FILENO, [] {
    signal::install();
    int ends[2];
    if (::pipe(ends) != 0) return 2;
    std::thread writer([&] {
      while (signal::stop_signal() == 0) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(20ms);
      if (::write(ends[1], "x", 1) != 1) ::_exit(3);
    });
    say("ready");
    errno = 77;
    char byte = 0;
    const ssize_t count = ::read(ends[0], &byte, 1);
    const int left = errno;
    writer.join();
    return count == 1 && left == 77 ? 0 : 1;
  });
  REQUIRE(process.await("ready"));
  process.signal(SIGTERM);
  CHECK(process.join() == 0);
}

TEST_CASE("if SIGINT was ignored, one sent by another process still requests a stop") {
  Process process(STDERR_FILENO, [] {
    ::signal(SIGINT, SIG_IGN);
    return install_and_watch();
  });
  REQUIRE(process.await("ready"));
  process.signal(SIGINT);
  REQUIRE(process.await("stop 2\n"));
  process.signal(SIGINT);
  CHECK(process.join() == -SIGINT);
}

TEST_CASE("if SIGINT was ignored, Ctrl-C at the terminal stays ignored") {
  const auto on_terminal = [](bool ignored) {
    const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    REQUIRE(::grantpt(master) == 0);
    REQUIRE(::unlockpt(master) == 0);
    const std::string name = ::ptsname(master);
    Process process(STDERR_FILENO, [&] {
      ::setsid();
      if (::open(name.c_str(), O_RDWR) < 0) return 2;  // becomes the controlling terminal
      if (ignored) ::signal(SIGINT, SIG_IGN);
      return install_and_watch();
    });
    REQUIRE(process.await("ready"));
    REQUIRE(::write(master, "\x03", 1) == 1);
    // Wait for the first signal: if two are pending, the second may be handled first.
    if (ignored) {
      std::this_thread::sleep_for(200ms);
    } else {
      REQUIRE(process.await("stop 2\n"));
    }
    process.signal(SIGTERM);
    REQUIRE(process.await("stop "));
    std::this_thread::sleep_for(20ms);
    process.signal(SIGKILL);
    const std::string output = process.rest();
    process.join();
    ::close(master);
    return output;
  };
  CHECK(count(on_terminal(false), "stop 2\n") == 1);
  const std::string output = on_terminal(true);
  CHECK(count(output, "stop 15\n") == 1);
  CHECK(count(output, "SIGINT") == 0);
}

TEST_CASE("each SIGUSR1 requests a checkpoint without requesting a stop") {
  Process process(STDERR_FILENO, [] {
    signal::install();
    say("ready");
    for (int taken = 0; signal::stop_signal() == 0; std::this_thread::sleep_for(1ms)) {
      if (signal::take_save_request()) say("save " + std::to_string(++taken));
    }
    return 0;
  });
  REQUIRE(process.await("ready"));
  process.signal(SIGUSR1);
  REQUIRE(process.await("save 1\n"));
  process.signal(SIGUSR1);
  REQUIRE(process.await("save 2\n"));
  process.signal(SIGTERM);
  CHECK(process.join() == 0);
}

}  // namespace signal_test
