// Tests the errors of collective calls, with replicas as threads: which calls fail, on which replicas, and for what
// reason.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adaptdl/collective.h"
#include "collective_support.h"

namespace collective_errors_test {

using namespace adaptdl;
using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;
using nlohmann::json;

TEST_CASE("a reduction that throws fails the call on every replica, and the next call works") {
  const auto errors = run_threads(3, [](Communicator& communicator) {
    const Reduce refuse = [](const Bytes&, const Bytes&) -> Bytes { throw std::runtime_error("never again"); };
    CHECK_THROWS_WITH_AS(communicator.allreduce(Bytes("x"), refuse), "allreduce #1: never again", CollectiveError);
    CHECK(communicator.allreduce(Bytes("x"), join) == "xxx");
    const Reduce odd = [](const Bytes&, const Bytes&) -> Bytes { throw 7; };
    CHECK_THROWS_AS(communicator.allreduce(Bytes("x"), odd), CollectiveError);
    const Reduce verbose = [](const Bytes&, const Bytes&) -> Bytes { throw Error(std::string(100000, 'v')); };
    CHECK_THROWS_WITH_AS(communicator.allreduce(Bytes("x"), verbose), doctest::Contains("vvv"), CollectiveError);
    communicator.teardown();
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("a value above max_message fails the call on every replica, and the next call works") {
  Options options = test_options(3);
  options.max_message = 8 << 20;
  const auto errors = run_threads(options, [&](Communicator& communicator) {
    const auto longer = [](const Bytes& a, const Bytes& b) { return a.size() >= b.size() ? a : b; };
    const std::size_t own = communicator.rank() == 1 ? options.max_message : 1;
    CHECK(communicator.allreduce(Bytes(own, 'x'), longer) == Bytes(options.max_message, 'x'));
    CHECK_THROWS_WITH_AS(communicator.allreduce(Bytes(own + 1, 'x'), longer),
                         "allreduce #2: replica 1: a value of 8388609 bytes is larger than max_message (8388608 bytes)",
                         adaptdl::collective::CallError);
    CHECK_THROWS_WITH_AS(communicator.allreduce(Bytes(3 << 20, 'x'), join),
                         doctest::Contains("the result: a value of 9437184 bytes is larger than max_message"),
                         CollectiveError);
    CHECK(communicator.allgather(Bytes(options.max_message / 3, 'x')).at(2).size() == options.max_message / 3);
    CHECK_THROWS_WITH_AS(communicator.allgather(Bytes(options.max_message / 2, 'x')),
                         doctest::Contains("larger than max_message"), CollectiveError);
    CHECK(communicator.allreduce(Bytes("x"), join) == "xxx");
    communicator.teardown();
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("mismatched calls fail on all replicas, and the error names the calls and ranks") {
  const std::string expected =
      "call #2 differs between replicas: allreduce on replicas 0, 2, broadcast on replica 1; all replicas must make "
      "the same calls in the same order";
  const auto errors = run_threads(3, [](Communicator& communicator) {
    communicator.allreduce(Bytes("x"), join);
    if (communicator.rank() == 1)
      communicator.broadcast(Bytes("x"));
    else
      communicator.allreduce(Bytes("x"), join);
  });
  CHECK(errors == std::vector<std::string>(3, expected));
}

TEST_CASE("calls with different purposes are a mismatch, and the error names the purposes") {
  std::atomic<int> mismatches{0};
  const auto errors = run_threads(3, [&](Communicator& communicator) {
    communicator.allreduce(Bytes("x"), join, "warm-up");
    const std::string purpose = communicator.rank() == 2 ? "loss\x1b[2J" : "step boundary";
    try {
      communicator.allreduce(Bytes("x"), join, purpose);
    } catch (const adaptdl::collective::MismatchError&) {
      CHECK_THROWS_AS(communicator.allgather("x"), adaptdl::collective::MismatchError);
      ++mismatches;
      throw;
    }
  });
  CHECK(errors == std::vector<std::string>(3,
                                           "call #2 differs between replicas: allreduce (step boundary) on replicas 0, "
                                           "1, allreduce (loss\\x1b[2J) on replica 2; all replicas must make the same "
                                           "calls in the same order"));
  CHECK(mismatches == 3);
}

TEST_CASE("when a call times out, the error names the replica that did not make the call" *
          doctest::test_suite("slow")) {
  for (const int lazy : {0, 2}) {
    Options options = test_options(3);
    options.timeout = 4s;  // long enough for the call of the third replica
    const auto start = Clock::now();
    std::atomic<int> failed{0};
    const auto body = [&](Communicator& communicator) {
      if (communicator.rank() == lazy) {
        while (failed < 2) std::this_thread::sleep_for(1ms);
        CHECK(error_of([&] { communicator.allreduce(Bytes("x"), join); }) != "");
        return;
      }
      const std::string error = error_of([&] { communicator.allreduce(Bytes("x"), join); });
      ++failed;
      CHECK(error == fmt::format("no value from replica {} during allreduce #1 within 4s", lazy));
      CHECK(error_of([&] { communicator.broadcast(Bytes("x")); }) == error);  // all later calls fail in the same way
    };
    const auto errors = run_threads(options, body, 30s);
    CHECK(errors == no_errors(3));
    CHECK(Clock::now() - start >= 4s);
    CHECK(Clock::now() - start < 30s);
  }
}

TEST_CASE("a result that arrived in time can be read after the deadline" * doctest::test_suite("slow")) {
  std::atomic<bool> sent{false};
  const auto body = [&](Communicator& communicator) {
    Future future = communicator.allreduce_async("x", join);
    const auto late = Clock::now() + 1800ms;
    if (communicator.rank() == 0) {
      while (!future.ready()) std::this_thread::sleep_for(1ms);
      sent = true;
    }
    while (!sent || Clock::now() < late) std::this_thread::sleep_for(1ms);
    CHECK(future.get() == "xxx");
  };
  const auto errors = run_threads(test_options(3), body, 1s);
  CHECK(errors == no_errors(3));
}

TEST_CASE("a future of a destroyed communicator throws") {
  Future future;
  std::atomic<bool> called{false};
  const auto errors = run_threads(2, [&](Communicator& communicator) {
    communicator.broadcast(Bytes("all are there"));
    if (communicator.rank() == 1) {
      future = communicator.allreduce_async("x", join);
      called = true;
    }
    while (!called) std::this_thread::sleep_for(1ms);
  });
  CHECK(errors == no_errors(2));
  CHECK_THROWS_AS(future.get(), CollectiveError);
}

TEST_CASE("closing rank 0's communicator fails pending calls on all threads of a peer") {
  const auto errors = run_threads(2, [&](Communicator& communicator) {
    if (communicator.rank() == 0) {
      std::this_thread::sleep_for(200ms);
      return;
    }
    Future future = communicator.allreduce_async("x", join);
    std::thread waiter([&] { CHECK_THROWS_AS(future.get(), CollectiveError); });
    std::this_thread::sleep_for(50ms);
    CHECK_THROWS_AS(communicator.broadcast(Bytes("x")), CollectiveError);
    waiter.join();
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("a JSON value nested too deeply fails only its own call, on every replica") {
  const auto nested = [](int levels) {
    json value;
    for (int i = 0; i < levels; ++i) value = json::array({std::move(value)});
    return value;
  };
  const auto errors = run_threads(2, [&](Communicator& communicator) {
    CHECK(communicator.broadcast(nested(200)) == nested(200));
    CHECK_THROWS_WITH_AS(communicator.broadcast(nested(201)), doctest::Contains("nested more than 200 levels deep"),
                         CollectiveError);
    CHECK_THROWS_AS(communicator.allreduce(nested(5000)), CollectiveError);
    CHECK(communicator.allreduce(json(1)) == 2);
  });
  CHECK(errors == no_errors(2));
}

}  // namespace collective_errors_test
