// Tests helper programs that succeed, are slow, print too much, or cannot be started.
#include "base/helper_program.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "temporary_directory.h"

namespace helper_program_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using End = HelperOutcome::End;
namespace fs = std::filesystem;

namespace {

HelperProgram shell(const std::string& script) { return {"sh", {"-c", script}, {}, ""}; }

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns whether the condition becomes true within a minute.
bool soon(const std::function<bool()>& is_true) {
  for (const auto until = Clock::now() + 60s; Clock::now() < until; std::this_thread::sleep_for(5ms))
    if (is_true()) return true;
  return false;
}

// Returns whether any process has the other end of a pipe open. Discards what is in the pipe.
bool is_held(int pipe) {
  char buffer[100];
  ssize_t count = 1;
  while (count > 0) count = ::read(pipe, buffer, sizeof buffer);
  return count < 0;
}

}  // namespace

TEST_CASE("a helper gets its input, arguments and environment, and returns its output and exit code") {
  const HelperOutcome done = run_helper(
      {"sh", {"-c", R"(cat; echo " $1 $WHO"; exit 7)", "sh", "word"}, {{"WHO=me", "PATH=/usr/bin:/bin"}}, "asked"},
      10s);
  CHECK(done.end == End::kExited);
  CHECK(done.code == 7);
  CHECK(done.output == "asked word me\n");
  ::setenv("HELPER_TEST", "inherited", 1);
  CHECK(run_helper(shell("echo $HELPER_TEST"), 10s).output == "inherited\n");
}

TEST_CASE("a helper may ignore its input, and input above the limit is rejected") {
  HelperProgram deaf = shell("echo done");
  deaf.input = std::string(60'000, 'x');
  CHECK(run_helper(deaf, 10s).output == "done\n");
  deaf.input = std::string(16'000'000, 'x');
  const HelperOutcome refused = run_helper(deaf, 10s);
  CHECK(refused.end == End::kNotStarted);
  CHECK(refused.code == EMSGSIZE);
}

TEST_CASE("failure to start a helper is reported with its errno") {
  CHECK(run_helper({"no-such-helper", {}, {}, ""}, 1s).code == ENOENT);
  const HelperOutcome denied = run_helper({"/etc/passwd", {}, {}, ""}, 1s);
  CHECK(denied.end == End::kNotStarted);
  CHECK(denied.code == EACCES);
}

TEST_CASE("if a signal terminates a helper, the outcome names the signal") {
  const HelperOutcome done = run_helper(shell("echo some; kill -TERM $$"), 10s);
  CHECK(done.end == End::kSignalled);
  CHECK(done.code == SIGTERM);
}

TEST_CASE("a helper that times out or is stopped is killed with its children" * doctest::test_suite("slow")) {
  const testing::TemporaryDirectory directory;
  // The helper and its children hold a pipe open, even if the helper is killed before it has started all of them.
  const std::string path = (directory.path() / "pipe").string();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int pipe = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const std::string children = "exec 3>" + path + "; sleep 300 >/dev/null & echo started >&3; ";
  std::stop_source stop;
  End expected = End::kTimeOver;
  std::chrono::milliseconds patience = 1s;
  std::string script;
  SUBCASE("while its output is open") { script = "wait"; }
  SUBCASE("after it has closed its output") { script = "exec >&-; wait"; }
  SUBCASE("on a stop request") {
    script = "wait";
    expected = End::kStopped;
    patience = 60s;
  }
  const auto start = Clock::now();
  std::jthread stopper;
  if (expected == End::kStopped)
    stopper = std::jthread([&] {
      char first = 0;
      soon([&] { return ::read(pipe, &first, 1) == 1; });
      stop.request_stop();
    });
  const HelperOutcome done = run_helper(shell(children + script), patience, stop.get_token());
  CHECK(done.end == expected);
  CHECK(done.output.empty());
  CHECK(Clock::now() - start < 50s);
  CHECK(soon([&] { return !is_held(pipe); }));
  ::close(pipe);
}

TEST_CASE("the size of a helper's output is limited") {
  const HelperOutcome most = run_helper(shell("head -c 1048576 /dev/zero"), 30s);
  CHECK(most.end == End::kExited);
  CHECK(most.output.size() == kMaxHelperOutput);
  const auto start = Clock::now();
  CHECK(run_helper(shell("cat /dev/zero"), 60s).end == End::kTooMuch);
  CHECK(Clock::now() - start < 30s);
}

TEST_CASE("a helper inherits standard error but not the signal mask") {
  const testing::TemporaryDirectory directory;
  const fs::path file = directory.path() / "stderr";
  const int before = ::dup(2), to = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  sigset_t blocked, old;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &old);
  ::dup2(to, 2);
  const HelperOutcome done = run_helper(shell("echo answer; echo complaint >&2; kill -TERM $$"), 10s);
  ::dup2(before, 2);
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ::close(before);
  ::close(to);
  CHECK(done.end == End::kSignalled);
  CHECK(text_of(file) == "complaint\n");
}

}  // namespace helper_program_test
