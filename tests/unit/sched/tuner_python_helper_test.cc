#include "tuner/python_helper.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "temporary_directory.h"

namespace adaptdl::sched::tune::tuner_python_helper_test {
namespace {

using nlohmann::json;

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

constexpr const char* kEcho = "while read -r line; do printf '{\"got\": %s}\\n' \"$line\"; done";

// Waits until the process is gone, or is a zombie that another process has to reap.
void wait_until_gone(pid_t pid) {
  const auto is_there = [pid] {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    return std::getline(stat, text) && text.substr(text.rfind(')') + 2, 1) != "Z";
  };
  while (is_there()) ::usleep(1000);
}

TEST_CASE("a helper answers requests") {
  PythonHelper helper(shell(std::string("echo '{\"ready\": true}'; ") + kEcho));
  CHECK(helper.receive() == json{{"ready", true}});
  const json request{{"name", "grüß \"\\\n"}, {"value", 0.1}};
  CHECK(helper.ask(request) == json{{"got", request}});
  CHECK(helper.ask({{"value", 1}}) == json{{"got", {{"value", 1}}}});
}

TEST_CASE("large requests and responses work while a helper writes to standard error" * doctest::test_suite("slow")) {
  PythonHelper helper(shell(std::string("head -c 300000 /dev/zero | tr '\\0' '\\n' >&2; ") + kEcho));
  const json request{{"text", std::string(3'000'000, 'x')}};
  CHECK(helper.ask(request) == json{{"got", request}});
}

TEST_CASE("the error for a helper that exits includes its last line of output") {
  const auto message = [](const std::string& script) -> std::string {
    try {
      PythonHelper(shell(script)).ask({{"value", 1}});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK_GOLDEN(message("read line; echo trace >&2; printf 'ImportError: x\\n\\n' >&2; exit 3"));
  CHECK_GOLDEN(message("exit 0"));
  CHECK_GOLDEN(message("read line; printf 'no end' >&2; kill -KILL $$"));
  CHECK_GOLDEN(message("read line; echo 'Traceback:'"));
  CHECK_GOLDEN(message("read line; echo '[1]'"));
  CHECK_GOLDEN(message("read line; printf '{\"value\": 1'"));
}

TEST_CASE("a program that does not exist or cannot be executed is rejected") {
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { PythonHelper({"no-such-python"}); }));
  CHECK_THROWS_AS(PythonHelper({"/no/such/python"}), UsageError);
  const ::testing::TemporaryDirectory directory;
  const std::filesystem::path program = directory.path() / "python";
  std::ofstream(program) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  CHECK_THROWS_WITH_AS(PythonHelper({program}),
                       ("cannot run '" + program.string() + "': No such file or directory").c_str(), Error);
}

TEST_CASE("destroying a helper also ends its child processes") {
  std::vector<pid_t> pids;
  {
    PythonHelper helper(shell("cat /dev/zero > /dev/null & echo \"{\\\"pids\\\": [$$, $!]}\"; wait"));
    pids = helper.receive()["pids"].get<std::vector<pid_t>>();
  }
  for (const pid_t pid : pids) wait_until_gone(pid);
}

TEST_CASE("a helper ends when the process that started it is killed") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    // The helper does not read, so it cannot notice the end of its input.
    PythonHelper helper(shell("echo \"{\\\"pid\\\": $$}\"; exec cat /dev/zero > /dev/null"));
    const auto pid = helper.receive()["pid"].get<pid_t>();
    [[maybe_unused]] const ssize_t written = ::write(ends[1], &pid, sizeof pid);
    ::raise(SIGKILL);
  }
  ::close(ends[1]);
  pid_t pid = -1;
  CHECK(::read(ends[0], &pid, sizeof pid) == sizeof pid);
  ::close(ends[0]);
  CHECK(::waitpid(parent, nullptr, 0) == parent);
  wait_until_gone(pid);
}

TEST_CASE("helpers run in their own session, and a stuck one is interrupted by a stop signal") {
  sigset_t stops, before;
  ::sigemptyset(&stops);
  ::sigaddset(&stops, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &stops, &before);
  {
    PythonHelper patient(shell(std::string("echo \"{\\\"session\\\": $(cut -d' ' -f6 /proc/$$/stat)}\"; ") + kEcho));
    CHECK(patient.receive()["session"] != ::getsid(0));
    PythonHelper stuck(shell("while read -r line; do :; done"), std::chrono::milliseconds(0));
    ::raise(SIGTERM);
    // A helper that answers within the grace period is not interrupted.
    CHECK(patient.ask({{"value", 1}}) == json{{"got", {{"value", 1}}}});
    CHECK_GOLDEN(::testing::error_of([&] { stuck.ask({{"value", 1}}); }));
  }
  int number = 0;
  ::sigwait(&stops, &number);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_python_helper_test
