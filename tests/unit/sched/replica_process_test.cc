#include "local/replica/replica_process.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "local/base/process_tree.h"

namespace replica_process_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using sched::ExitStatus;

namespace {

// Polls until `condition` holds. Returns false after a minute.
template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

std::string read_line(const adaptdl::Fd& fd) {
  std::string line;
  char c = 0;
  pollfd polled{fd.get(), POLLIN, 0};
  while (::poll(&polled, 1, 60'000) > 0 && ::read(fd.get(), &c, 1) == 1 && c != '\n') line += c;
  return line;
}

const std::vector<std::string> kEnvironment = {"PATH=/usr/bin:/bin", "GREETING=hello"};

std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

}  // namespace

TEST_CASE("a replica gets its pipes, its environment and empty standard input") {
  sched::Guardian guardian;
  sched::ReplicaProcess replica("/bin/sh",
                                shell("echo $GREETING; echo oops >&2; echo {} >&$ADAPTDL_STATUS_FD; cat; exit 5"),
                                kEnvironment, guardian);
  CHECK(read_line(replica.out) == "hello");
  CHECK(read_line(replica.err) == "oops");
  CHECK(read_line(replica.status) == "{}");
  REQUIRE(eventually([&] { return replica.exit_status().has_value(); }));
  CHECK(*replica.exit_status() == ExitStatus{.signalled = false, .code = 5});
}

TEST_CASE("a replica inherits only the standard streams and the status descriptor") {
  constexpr int kStray = 251;
  REQUIRE(::dup2(STDERR_FILENO, kStray) == kStray);  // without close-on-exec
  sched::Guardian guardian;
  // The shell lists its own descriptors, because another process would open more.
  sched::ReplicaProcess replica("/bin/sh", shell("cd /proc/self/fd; echo *; echo 0 1 2 $ADAPTDL_STATUS_FD"),
                                kEnvironment, guardian);
  ::close(kStray);
  const std::string listed = read_line(replica.out), expected = read_line(replica.out);
  // The listing itself may use a descriptor.
  CHECK((listed == expected || listed.find("251") == std::string::npos));
  CHECK(listed.size() <= expected.size() + 2);
}

TEST_CASE("a replica leads its own session and starts with no signal blocked or ignored") {
  sched::Guardian guardian;
  sigset_t mask, before;
  ::sigfillset(&mask);
  ::sigprocmask(SIG_BLOCK, &mask, &before);
  const auto old_pipe = ::signal(SIGPIPE, SIG_IGN);
  const auto old_hangup = ::signal(SIGHUP, SIG_DFL);  // replicas inherit an ignored SIGHUP, so that nohup(1) works
  sched::ReplicaProcess replica("/bin/sh",
                                shell("grep -E 'Sig(Blk|Ign)' /proc/self/status | tr '\\n' ' '; echo; sleep 100"),
                                kEnvironment, guardian);
  ::signal(SIGPIPE, old_pipe);
  ::signal(SIGHUP, old_hangup);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  CHECK(read_line(replica.out) == "SigBlk:\t0000000000000000 SigIgn:\t0000000000000000 ");
  CHECK(::getsid(replica.pid()) == replica.pid());
}

TEST_CASE("death by a signal is reported, and the process remains until it is reaped") {
  sched::Guardian guardian;
  sched::ReplicaProcess replica("/bin/sleep", {"sleep", "100"}, kEnvironment, guardian);
  CHECK_FALSE(replica.exit_status().has_value());
  replica.signal(SIGUSR1);
  REQUIRE(eventually([&] { return replica.exit_status().has_value(); }));
  CHECK(*replica.exit_status() == ExitStatus{.signalled = true, .code = SIGUSR1});
  CHECK(::kill(replica.pid(), 0) == 0);
  const pid_t pid = replica.pid();
  replica.reap();
  CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("a program that cannot be executed is rejected") {
  sched::Guardian guardian;
  CHECK_GOLDEN(::testing::error_of<UsageError>(
      [&] { sched::ReplicaProcess("/etc/passwd", {"passwd"}, kEnvironment, guardian); }));
  CHECK_THROWS_AS(sched::ReplicaProcess("/nowhere", {"nowhere"}, kEnvironment, guardian), UsageError);
}

TEST_CASE("descendants are killed with the session, even in their own process groups") {
  sched::Guardian guardian;
  // `set -m` gives each background job a process group, as an interactive shell does.
  sched::ReplicaProcess replica("/bin/sh", shell("set -m; sleep 100 & sleep 100 & echo ready; wait"), kEnvironment,
                                guardian);
  REQUIRE(read_line(replica.out) == "ready");
  CHECK(sched::session_members({replica.pid()}, true).size() == 2);
  replica.kill_session();
  CHECK(eventually([&] { return replica.kill_session() == 0; }));
  CHECK(sched::session_members({replica.pid()}).empty());
}

TEST_CASE("only the topmost processes that a session leader leaves behind are asked to stop") {
  sched::Guardian guardian;
  sched::ReplicaProcess replica("/bin/sh",
                                shell("sh -c 'trap \"echo asked; exit\" TERM; sleep 100 & echo ready; wait' & wait"),
                                kEnvironment, guardian);
  REQUIRE(read_line(replica.out) == "ready");
  replica.signal(SIGKILL);
  REQUIRE(eventually([&] { return replica.exit_status().has_value(); }));
  CHECK(sched::signal_orphans(replica.pid(), SIGTERM) == 1);
  CHECK(read_line(replica.out) == "asked");
}

TEST_CASE("a guardian kills watched sessions but not forgotten ones when its launcher is gone") {
  pid_t forgotten = 0, watched = 0;
  {
    sched::Guardian guardian;
    for (pid_t* pid : {&forgotten, &watched}) {
      *pid = ::fork();
      if (*pid == 0) {
        ::setsid();
        ::execl("/bin/sleep", "sleep", "100", nullptr);  // exec closes the guardian's pipe
        ::_exit(1);
      }
      REQUIRE(eventually([pid] { return ::getsid(*pid) == *pid; }));
      guardian.watch(*pid);
    }
    guardian.forget(forgotten);
  }
  CHECK(eventually([&] { return sched::session_members({watched}).empty(); }));
  CHECK(sched::session_members({forgotten}).size() == 1);
  ::kill(forgotten, SIGKILL);
}

}  // namespace replica_process_test
