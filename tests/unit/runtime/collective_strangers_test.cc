// Tests that connections from strangers, and from replicas that do not belong to the job, do not disturb it.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adaptdl/collective.h"
#include "collective_connect_support.h"
#include "collective_support.h"

namespace collective_strangers_test {

using namespace adaptdl;
using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;
using namespace collective_connect_support;
using nlohmann::json;

namespace {

// Runs `visit` with the port of a job with two replicas once rank 0 is listening, then lets rank 1 join, and runs
// `visit` again while the job is running. The job must not be affected.
void visit_job(const std::function<void(std::uint16_t port, bool running)>& visit, const std::string& job = "",
               const std::string& secret = "") {
  std::promise<std::uint16_t> listening;
  Options options = test_options(2);
  options.job = job;
  options.secret = secret;
  std::thread root([&, options] {
    CHECK(error_of([&] {
            Communicator communicator(options, [&](std::uint16_t port) { listening.set_value(port); });
            for (int i = 0; i < 3; ++i) CHECK(communicator.allreduce(json("a")) == "ab");
            communicator.teardown();
          }) == "");
  });
  options.rank = 1;
  options.master_port = listening.get_future().get();
  visit(options.master_port, false);
  CHECK(error_of([&] {
          const auto start = Clock::now();
          Communicator communicator(options);
          CHECK(Clock::now() - start < 20s);  // the strangers would take far longer one after another
          CHECK(communicator.allreduce(json("b")) == "ab");
          visit(options.master_port, true);
          CHECK(communicator.allreduce(json("b")) == "ab");
          CHECK(communicator.allreduce(json("b")) == "ab");
          communicator.teardown();
        }) == "");
  root.join();
}

}  // namespace

TEST_CASE("connections that send invalid data are rejected without disturbing the job") {
  visit_job([](std::uint16_t port, bool) {
    const auto answer = [&](const std::string& words) {
      const Socket stranger = Socket::connected(port);
      stranger.send(words);
      return stranger.receive_all();
    };
    for (const std::string& words : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100000, '\xff'),
                                     std::string(1, '\0'), std::string("adaptdl\r")})
      CHECK(answer(words) == "");
    for (const std::string& words : {hello(1, 2, std::string(2000, 'j')), hello(1, 2) + "more"})
      CHECK(answer(words).size() == opening().size());
    for (const std::string& body : {std::string(), std::string(15, '\0'), request(1, 2, "\x1b[31m").substr(36)})
      check_contains(answer(opening() + sealed(body)), "its request is malformed");
  });
}

TEST_CASE("silent and half-finished connections do not delay the job") {
  std::vector<Socket> strangers;
  visit_job([&](std::uint16_t port, bool) {
    for (std::size_t i = 0; i < hello(1, 2).size(); i += 2) {
      strangers.push_back(Socket::connected(port));
      strangers.back().send(hello(1, 2).substr(0, i));
    }
  });
}

TEST_CASE("hundreds of silent connections do not prevent a replica from joining") {
  std::vector<Socket> strangers;
  visit_job([&](std::uint16_t port, bool running) {
    for (int i = 0; i < (running ? 50 : 400); ++i) strangers.push_back(Socket::connected(port));
  });
}

TEST_CASE("mismatched replicas are rejected with the reason and do not disturb the job") {
  visit_job(
      [](std::uint16_t port, bool running) {
        const auto answer = [&](const std::string& words) {
          const Socket stranger = Socket::connected(port);
          stranger.send(words);
          return stranger.receive_all();
        };
        check_contains(answer(hello(1, 3, "ns/a")), "it expects 3 replicas, but this job has 2");
        check_contains(answer(hello(2, 2, "ns/a")), "rank 2 cannot join: expected a rank from 1 to 1");
        check_contains(answer(hello(0, 2, "ns/a")), "rank 0 cannot join");
        check_contains(answer(hello(1, 2, "ns/b")), "it belongs to job 'ns/b', but this is job 'ns/a'");
        check_contains(answer(hello(1, 2, "")), "it belongs to an unnamed job");
        check_contains(answer(hello(1, 2, "ns/a", 5)), "its max_message is 5");
        CHECK(answer(opening(7)).substr(0, 12) == opening().substr(0, 12));
        if (running) check_contains(answer(hello(1, 2, "ns/a")), "rank 1 is already in use by a replica at 127.0.0.1");
      },
      "ns/a");
}

TEST_CASE("replicas and a rank 0 without the job's secret are rejected" * doctest::test_suite("slow")) {
  visit_job(
      [](std::uint16_t port, bool running) {
        const Socket stranger = Socket::connected(port);
        stranger.send(hello(1, 2, "ns/a"));
        CHECK(stranger.receive_all().size() == opening().size());
        Options options = test_options(2);
        options.rank = 1;
        options.master_port = port;
        options.job = "ns/a";
        options.secret = running ? "another secret" : "";
        options.connect_timeout = 4s;  // long enough for one attempt to complete
        check_contains(error_of([&] { Communicator{options}; }),
                       "(it closed the connection without an answer; does it have the same secret?)");
      },
      "ns/a", "the secret");
  check_contains(error_with_root(
                     [](const Socket& connection) {
                       let_in(connection);
                       connection.send(accepted());
                     },
                     30s, 200ms, "the secret"),
                 "is not replica 0: it does not have this job's secret");
}

TEST_CASE("a rejected secret is still reported as the reason after replica 0 has exited" *
          doctest::test_suite("slow")) {
  std::optional<Socket> listener(std::in_place);
  Options options = test_options(2);
  options.rank = 1;
  options.connect_timeout = 4s;  // long enough for one attempt to complete
  options.master_port = listener->bind();
  listener->listen();
  // Behaves like a rank 0 that has another secret and gives up first.
  std::thread root([&] {
    let_in(listener->accept());
    listener.reset();
  });
  const std::string error = error_of([&] { Communicator{options}; });
  root.join();
  check_contains(error, "onnection refused");
  check_contains(error, "earlier: it closed the connection without an answer; does it have the same secret?");
}

TEST_CASE("the second of two replicas with the same rank is rejected") {
  std::promise<std::uint16_t> listening;
  Options options = test_options(3);
  options.job = "ns/job";
  std::thread root([&, options] {
    CHECK(error_of([&] {
            Communicator communicator(options, [&](std::uint16_t port) { listening.set_value(port); });
            communicator.teardown();
          }) == "");
  });
  options.master_port = listening.get_future().get();
  const auto join_as = [&](int rank) {
    Options own = options;
    own.rank = rank;
    return error_of([&] { Communicator(own).teardown(); });
  };
  std::string first, second;
  std::atomic<int> ended{0};
  std::thread one([&] { first = join_as(1), ++ended; });
  std::thread two([&] { second = join_as(1), ++ended; });
  // Rank 2 must not join earlier: the job starts, and rank 0 may exit, once all replicas are connected.
  while (ended == 0) std::this_thread::sleep_for(1ms);
  CHECK(join_as(2) == "");
  one.join();
  two.join();
  root.join();
  CHECK((first.empty() != second.empty()));
  check_contains(first + second, "refused replica 1: rank 1 is already in use by a replica at 127.0.0.1");
}

TEST_CASE("using the port of another job fails with the reason") {
  visit_job([](std::uint16_t port, bool) {
    Options options = test_options(2);
    options.master_port = port;
    CHECK_THROWS_WITH_AS(Communicator{options}, doctest::Contains("is in use by another process"), Error);
    options.rank = 1;
    options.job = "ns/other";
    CHECK_THROWS_WITH_AS(Communicator{options},
                         doctest::Contains("it belongs to job 'ns/other', but this is an unnamed job"),
                         CollectiveError);
  });
}

TEST_CASE("rank 0 survives running out of file descriptors" * doctest::test_suite("slow")) {
  Child child([](const Child::Test& test) {
    Options options = test_options(2);
    Communicator communicator(options, [&](std::uint16_t port) {
      const rlimit few{32, 32};
      ::setrlimit(RLIMIT_NOFILE, &few);
      test.say(std::to_string(port));
    });
    test.say(communicator.allreduce(json("a")).get<std::string>());
  });
  Options options = test_options(2);
  options.rank = 1;
  options.master_port = static_cast<std::uint16_t>(std::stoi(child.read_line()));
  {
    std::vector<Socket> strangers;
    for (int i = 0; i < 60; ++i) strangers.push_back(Socket::connected(options.master_port));
    std::this_thread::sleep_for(100ms);
  }
  Communicator communicator(options);
  CHECK(communicator.allreduce(json("b")) == "ab");
  CHECK(child.read_line() == "ab");
}

}  // namespace collective_strangers_test
