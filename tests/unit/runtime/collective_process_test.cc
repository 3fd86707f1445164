// Tests replicas that run in separate processes and are killed or stopped with real signals: no other replica hangs,
// and all of them learn which one failed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "adaptdl/collective.h"
#include "collective_support.h"
#include "golden.h"

namespace collective_process_test {

using namespace adaptdl;
using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;
using nlohmann::json;

namespace {

// Milliseconds: far more than an idle machine needs, and less than the default timeout of a call.
constexpr std::int64_t kSoon = 20'000;

// Returns TEXT of the next line "error MILLISECONDS TEXT", and checks that the time is soon after `since`.
std::string timely_error(Child& child, std::int64_t since) {
  const std::string line = child.read_line();
  int consumed = 0;
  long long at = 0;
  if (std::sscanf(line.c_str(), "error %lld %n", &at, &consumed) != 1) return line;
  CHECK(at - since <= kSoon);
  return line.substr(static_cast<std::size_t>(consumed));
}

// Returns whether rank 0 has accepted the replica: its epoll(7) then watches the connection, with the rank as data.
bool has_admitted(const Child& root, unsigned long long rank) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fdinfo", root.pid()), error)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      unsigned long long data = 0;
      if (std::sscanf(line.c_str(), "tfd: %*d events: %*x data: %llx", &data) == 1 && data == rank) return true;
    }
  }
  return false;
}

void expect_ready(std::vector<Child>& children) {
  for (Child& child : children) CHECK(child.read_line() == "ready");
}

// Kills replica `victim` of `size` while the others are blocked in a call that the victim has not made.
void kill_while_others_wait(int size, int victim) {
  auto children = start_processes(test_options(size), [&](Communicator& communicator, const Child::Test& test) {
    communicator.allreduce(json(1));
    if (communicator.rank() == victim) {
      test.say("ready");
      test.await_go();
    }
    // From here on, the call lacks only the victim's value.
    Future sum = communicator.allreduce_async("1", join);
    test.say("ready");
    test.say_error([&] { sum.get(); });
  });
  expect_ready(children);
  std::this_thread::sleep_for(50ms);  // most replicas are blocked by now, but the result must not depend on that
  const std::int64_t killed = now_ms();
  children[static_cast<std::size_t>(victim)].signal(SIGKILL);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    const std::string error = timely_error(children[static_cast<std::size_t>(rank)], killed);
    CHECK(error == fmt::format("replica {} left the job during allreduce #2 (connection closed)", victim));
    CHECK(children[static_cast<std::size_t>(rank)].join() == 0);
  }
}

}  // namespace

TEST_CASE("killing a replica fails the pending call on all others") {
  for (const int size : {2, 3, 8}) kill_while_others_wait(size, size - 1);
  kill_while_others_wait(3, 1);
}

TEST_CASE("killing rank 0 fails the pending call on all others") {
  for (const int size : {2, 8}) kill_while_others_wait(size, 0);
}

TEST_CASE("killing a replica between calls fails the next call on all others") {
  for (const int victim : {0, 2}) {
    auto children = start_processes(test_options(3), [](Communicator& communicator, const Child::Test& test) {
      communicator.allreduce(json(1));
      test.say("ready");
      test.await_go();
      test.say_error([&] { communicator.allreduce(json(1)); });
      test.say_error([&] { communicator.allreduce_async("x", join); });
    });
    expect_ready(children);
    children[static_cast<std::size_t>(victim)].signal(SIGKILL);
    CHECK(children[static_cast<std::size_t>(victim)].join() == -SIGKILL);
    std::this_thread::sleep_for(100ms);
    const std::int64_t called = now_ms();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (static_cast<int>(rank) == victim) continue;
      children[rank].go();
      for (int call = 0; call < 2; ++call) {
        const std::string error = timely_error(children[rank], called);
        CHECK_MESSAGE(error.find(fmt::format("replica {} left the job", victim)) == 0, error);
      }
    }
  }
}

TEST_CASE("killing a replica during a large transfer fails the call on all others") {
  for (int attempt = 0; attempt < 6; ++attempt) {
    const int victim = attempt % 3;
    auto children = start_processes(test_options(3), [](Communicator& communicator, const Child::Test& test) {
      test.say("ready");
      const auto longer = [](const Bytes& a, const Bytes& b) { return a.size() >= b.size() ? a : b; };
      test.say_error([&] {
        for (;;) communicator.allreduce(Bytes(4 << 20, 'x'), longer);
      });
      test.await_go();  // never returns: a replica that exits stops delivering to slow peers
    });
    expect_ready(children);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 7 * attempt));
    const std::int64_t killed = now_ms();
    children[static_cast<std::size_t>(victim)].signal(SIGKILL);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (static_cast<int>(rank) == victim) continue;
      const std::string error = timely_error(children[rank], killed);
      CHECK_MESSAGE(error.find(fmt::format("replica {} left the job", victim)) == 0, error);
    }
  }
}

TEST_CASE("killing a replica while others are connecting fails those already connected") {
  for (const int victim : {0, 1}) {
    Options options = test_options(4);
    std::vector<Child> children;
    for (int rank = 0; rank < 3; ++rank) {  // rank 3 never connects
      options.rank = rank;
      children.emplace_back([options](const Child::Test& test) {
        test.say_error(
            [&] { Communicator communicator(options, [&](std::uint16_t port) { test.say(std::to_string(port)); }); });
      });
      if (rank == 0) options.master_port = static_cast<std::uint16_t>(std::stoi(children[0].read_line()));
    }
    const auto both_are_in = [&] { return has_admitted(children[0], 1) && has_admitted(children[0], 2); };
    for (const auto until = Clock::now() + 30s; !both_are_in() && Clock::now() < until;)
      std::this_thread::sleep_for(1ms);
    const std::int64_t killed = now_ms();
    children[static_cast<std::size_t>(victim)].signal(SIGKILL);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (static_cast<int>(rank) == victim) continue;
      const std::string expected = victim == 0
                                       ? "replica 0 left the job while its peers were connecting (connection closed)"
                                       : "replica 1 left the job while it was connecting (connection closed)";
      CHECK(timely_error(children[rank], killed) == expected);
    }
  }
}

TEST_CASE("if a replica is stopped, the call times out on all others, and the error names the replica" *
          doctest::test_suite("slow")) {
  Options options = test_options(3);
  options.timeout = 4s;  // long enough for the values of the other replicas
  const auto body = [](Communicator& communicator, const Child::Test& test) {
    communicator.allreduce(json(1));
    test.say("ready");
    if (communicator.rank() == 2) test.await_go();
    test.say_error([&] { communicator.allreduce(json(1)); });
  };
  auto children = start_processes(options, body, 30s);
  expect_ready(children);
  children[2].signal(SIGSTOP);
  const std::int64_t stopped = now_ms();
  for (const std::size_t rank : {0u, 1u}) CHECK_GOLDEN(timely_error(children[rank], stopped));
}

TEST_CASE("if rank 0 is stopped, the call times out on all others" * doctest::test_suite("slow")) {
  const auto body = [](Communicator& communicator, const Child::Test& test) {
    communicator.allreduce(json(1));
    test.say("ready");
    test.await_go();
    // The value exceeds what the kernel buffers for a process that does not read.
    test.say_error([&] { communicator.allreduce(Bytes(communicator.rank() == 1 ? 32 << 20 : 1, 'x'), join); });
  };
  auto children = start_processes(test_options(3), body, 4s);
  expect_ready(children);
  children[0].signal(SIGSTOP);
  for (const std::size_t rank : {1u, 2u}) children[rank].go();
  const std::int64_t stopped = now_ms();
  CHECK_GOLDEN(timely_error(children[1], stopped));
  CHECK_GOLDEN(timely_error(children[2], stopped));
}

TEST_CASE("all processes get the result of their last call even if they exit without teardown") {
  for (int attempt = 0; attempt < 10; ++attempt) {
    auto children = start_processes(test_options(4), [](Communicator& communicator, const Child::Test& test) {
      for (int i = 0; i < 20; ++i) communicator.allreduce(json(1));
      test.say(communicator.allreduce(json("r")).get<std::string>());
    });
    for (Child& child : children) {
      CHECK(child.read_line() == "rrrr");
      CHECK(child.join() == 0);
    }
  }
}

TEST_CASE("destroying the communicator in a forked child does not affect the job") {
  auto children = start_processes(test_options(2), [](Communicator& communicator, const Child::Test& test) {
    const pid_t child = ::fork();
    if (child == 0) {
      communicator.~Communicator();
      ::_exit(7);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    test.say(fmt::format("{} {}", WEXITSTATUS(status), communicator.allreduce(json(1)).get<int>()));
    communicator.teardown();
  });
  for (Child& child : children) {
    CHECK(child.read_line() == "7 2");
    CHECK(child.join() == 0);
  }
}

TEST_CASE("handled signals do not interrupt calls") {
  auto children = start_processes(test_options(3), [](Communicator& communicator, const Child::Test& test) {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // without SA_RESTART
    ::sigaction(SIGUSR1, &action, nullptr);
    test.say("ready");
    for (int i = 0; i < 300; ++i) {
      if (communicator.rank() == i % 3) std::this_thread::sleep_for(1ms);
      communicator.allreduce(json(1));
    }
    communicator.teardown();
    test.say("done");
  });
  expect_ready(children);
  for (int i = 0; i < 300; ++i) {
    for (const Child& child : children) child.signal(SIGUSR1);
    std::this_thread::sleep_for(1ms);
  }
  for (Child& child : children) CHECK(child.read_line() == "done");
}

TEST_CASE("the global communicator reads its options from the environment") {
  Child holder([](const Child::Test& test) {
    Options options = test_options(2);
    test.say_error([&] { collective::world(); });
    collective::initialize(options, [&](std::uint16_t port) { test.say(std::to_string(port)); });
    test.say_error([&] { collective::initialize(test_options(1)); });
    auto later = collective::allreduce_async(2);
    test.say(collective::allreduce(json("a")).get<std::string>());
    test.say(later.get() == 5 ? "5" : "another sum");
    collective::teardown();
    test.say(collective::initialized() ? "initialized" : "torn down");
    collective::initialize(test_options(1));
    test.say(collective::broadcast(json("again")).get<std::string>());
  });
  check_contains(holder.read_line(), "call init_process_group first");
  const std::string port = holder.read_line();
  Child other([&](const Child::Test& test) {
    ::setenv("ADAPTDL_MASTER_ADDR", "localhost", 1);
    ::setenv("ADAPTDL_NUM_REPLICAS", "2", 1);
    ::setenv("ADAPTDL_REPLICA_RANK", "1", 1);
    test.say_error([&] { collective::initialize(); });  // fails without the port
    ::setenv("ADAPTDL_MASTER_PORT", port.c_str(), 1);
    collective::initialize();
    auto later = collective::allreduce_async(3);
    test.say(collective::allreduce(json("b")).get<std::string>());
    test.say(later.get() == 5 ? "5" : "another sum");
    collective::teardown();
  });
  check_contains(other.read_line(), "set ADAPTDL_MASTER_PORT");
  check_contains(holder.read_line(), "already initialized");
  for (Child* child : {&holder, &other}) {
    CHECK(child->read_line() == "ab");
    CHECK(child->read_line() == "5");
  }
  CHECK(holder.read_line() == "torn down");
  CHECK(holder.read_line() == "again");
  CHECK(holder.join() == 0);
  CHECK(other.join() == 0);
}

}  // namespace collective_process_test
