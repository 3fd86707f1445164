// Tests the results of collective calls, with replicas as threads.
#include "adaptdl/collective.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/link.h"
#include "collective_support.h"
#include "held_port.h"

namespace collective_test {

using namespace adaptdl;
using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;
using nlohmann::json;

namespace {

std::size_t open_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

void sleep_at_random(std::mt19937& random, int most_ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % static_cast<unsigned>(most_ms + 1)));
}

}  // namespace

TEST_CASE("a single replica gets its own values back and opens no file descriptors") {
  const std::size_t before = open_descriptors();
  Communicator alone(test_options(1));
  CHECK(open_descriptors() == before);
  CHECK(alone.allreduce(Bytes("a"), join) == "a");
  CHECK(alone.allreduce_async("b", join).get() == "b");
  CHECK(alone.broadcast(Bytes("c")) == "c");
  CHECK(alone.allgather("d") == std::vector<Bytes>{"d"});
  CHECK(alone.allreduce(json{{"n", 3}}) == json{{"n", 3}});
  alone.teardown();
  CHECK_THROWS_WITH_AS(alone.broadcast(Bytes("x")), doctest::Contains("torn down"), CollectiveError);
}

TEST_CASE("allreduce combines the values in rank order and returns the result on every replica") {
  for (const int size : {2, 3, 8}) {
    Bytes expected;
    for (int rank = 0; rank < size; ++rank) expected += fmt::format("<{}>", rank);
    const auto errors = run_threads(size, [&](Communicator& communicator) {
      CHECK(communicator.size() == size);
      for (int i = 0; i < 50; ++i)
        CHECK(communicator.allreduce(fmt::format("<{}>", communicator.rank()), Reduce(join)) == expected);
      communicator.teardown();
    });
    CHECK(errors == no_errors(size));
  }
}

TEST_CASE("broadcast returns rank 0's value on every replica, and allgather all values by rank") {
  const auto errors = run_threads(3, [](Communicator& communicator) {
    const std::string own(static_cast<std::size_t>(communicator.rank()), 'x');
    CHECK(communicator.broadcast(Bytes(own + "!")) == "!");
    CHECK(communicator.allgather(own) == std::vector<Bytes>{"", "x", "xx"});
    CHECK(communicator.broadcast(json{{"from", communicator.rank()}}) == json{{"from", 0}});
    communicator.teardown();
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("replicas may enter a call in any order") {
  const auto errors = run_threads(4, [](Communicator& communicator) {
    std::mt19937 random(static_cast<unsigned>(communicator.rank()));
    for (int i = 0; i < 30; ++i) {
      sleep_at_random(random, 4);
      CHECK(communicator.allreduce(json(i * communicator.rank())) == json(6 * i));
    }
    communicator.teardown();
  });
  CHECK(errors == no_errors(4));
}

TEST_CASE("asynchronous calls can be awaited in any order, on any thread, or not at all") {
  const auto errors = run_threads(3, [](Communicator& communicator) {
    const Bytes own = std::to_string(communicator.rank());
    for (int i = 0; i < 20; ++i) {
      Future first = communicator.allreduce_async(own + "a", join);
      Future second = communicator.allreduce_async(own + "b", join);
      communicator.allreduce_async("dropped", join);
      CHECK(communicator.broadcast(Bytes("between")) == "between");
      Future third = communicator.allreduce_async(own + "c", join);
      Bytes in_thread;
      std::thread waiter([&] { in_thread = third.get(); });
      CHECK(second.get() == "0b1b2b");
      CHECK(first.get() == "0a1a2a");
      CHECK_FALSE(first.valid());
      waiter.join();
      CHECK(in_thread == "0c1c2c");
    }
    communicator.teardown();
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("peers get their results while rank 0 is busy") {
  std::atomic<int> done{0};
  const auto errors = run_threads(3, [&](Communicator& communicator) {
    Future future = communicator.allreduce_async("x", join);
    if (communicator.rank() == 0) {
      const auto deadline = Clock::now() + 30s;
      while (done < 2 && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
      CHECK(done == 2);
    }
    CHECK(future.get() == "xxx");
    ++done;
    communicator.teardown();
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("a future becomes ready without a waiting thread") {
  const auto errors = run_threads(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) std::this_thread::sleep_for(30ms);
    Future future = communicator.allreduce_async("x", join);
    const auto deadline = Clock::now() + 30s;
    while (!future.ready() && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
    CHECK(future.ready());
    CHECK(future.get() == "xx");
    communicator.teardown();
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("a replica may run thousands of calls ahead of the others") {
  const auto errors = run_threads(3, [](Communicator& communicator) {
    if (communicator.rank() != 1) std::this_thread::sleep_for(200ms);
    std::vector<Future> futures;
    for (int i = 0; i < 5000; ++i) futures.push_back(communicator.allreduce_async(Bytes(200, 'x'), join));
    for (Future& future : futures) CHECK(future.get().size() == 600);
    communicator.teardown();
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("large results are delivered to a replica that reads slowly" * doctest::test_suite("slow")) {
  const auto errors = run_threads(3, [](Communicator& communicator) {
    const auto longer = [](const Bytes& a, const Bytes& b) { return a.size() >= b.size() ? a : b; };
    std::vector<Future> futures;
    for (int i = 0; i < 12; ++i) futures.push_back(communicator.allreduce_async(Bytes(3 << 20, 'x'), longer));
    if (communicator.rank() == 2) std::this_thread::sleep_for(300ms);
    for (Future& future : futures) CHECK(future.get() == Bytes(3 << 20, 'x'));
    communicator.teardown();
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("results of rank 0 are delivered even if it leaves immediately" * doctest::test_suite("slow")) {
  // The other replicas do not read for a while, and on a busy machine for even longer.
  const auto linger_stall = std::exchange(adaptdl::collective::linger_stall, 30s);
  const Bytes large(24 << 20, 'r');
  const auto errors = run_threads(3, [&](Communicator& communicator) {
    const auto keep_first = [](Bytes a, const Bytes&) { return a; };
    if (communicator.rank() == 0) {
      communicator.allreduce(large, keep_first);
      return;
    }
    Future future = communicator.allreduce_async("x", keep_first);
    std::this_thread::sleep_for(communicator.rank() * 200ms);
    CHECK(future.get() == large);
    const std::string error = error_of([&] { communicator.allreduce(Bytes("x"), join); });
    CHECK_MESSAGE(error.find("replica 0 left the job") == 0, error);
  });
  CHECK(errors == no_errors(3));
  adaptdl::collective::linger_stall = linger_stall;
}

TEST_CASE("after teardown the replicas can reconnect on the same port") {
  const ::testing::HeldPort port;  // no other program can take the port between two communicators
  Options options = test_options(3);
  options.master_port = port.number();
  for (int i = 0; i < 20; ++i) {
    const auto errors = run_threads(options, [](Communicator& communicator) {
      CHECK(communicator.allreduce(json(1)) == 3);
      communicator.teardown();
      CHECK_THROWS_WITH_AS(communicator.broadcast(Bytes("x")), doctest::Contains("torn down"), CollectiveError);
      Options again = test_options(3);
      again.rank = communicator.rank();
      again.master_port = communicator.port();
      Communicator second(again);  // others may still be in teardown
      CHECK(second.allreduce(json(2)) == 6);
      second.teardown();
    });
    CHECK(errors == no_errors(3));
  }
}

TEST_CASE("JSON values are transmitted exactly") {
  const json value = {{"nan", std::nan("")},
                      {"inf", -std::numeric_limits<double>::infinity()},
                      {"tiny", std::numeric_limits<double>::denorm_min()},
                      {"third", 1.0 / 3},
                      {"large", std::numeric_limits<std::uint64_t>::max()},
                      {"small", std::numeric_limits<std::int64_t>::min()},
                      {"text", std::string("\0\xc3\xa9\n", 4)},
                      {"nothing", nullptr},
                      {"list", {true, false, json::array(), json::object()}}};
  const auto errors = run_threads(2, [&](Communicator& communicator) {
    json got = communicator.broadcast(communicator.rank() == 0 ? value : json());
    CHECK(std::isnan(got["nan"].get<double>()));
    got["nan"] = 0;
    json expected = value;
    expected["nan"] = 0;
    CHECK(got == expected);
    CHECK(std::isnan(communicator.allreduce(json(std::nan(""))).get<double>()));
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("sum adds numbers, concatenates arrays and strings, and merges objects key by key") {
  CHECK(sum(1, 2) == 3);
  CHECK(sum(1, 2).is_number_integer());
  CHECK(sum(1, -2) == -1);
  CHECK(sum(1, 0.5) == 1.5);
  CHECK(sum("ab", "cd") == "abcd");
  CHECK(sum(json::array({1, "x"}), json::array({2})) == json::array({1, "x", 2}));
  CHECK(sum({{"a", 1}, {"b", {{"c", "x"}}}}, {{"b", {{"c", "y"}}}, {"d", 0.5}}) ==
        json{{"a", 1}, {"b", {{"c", "xy"}}}, {"d", 0.5}});
}

TEST_CASE("sum adds integers exactly up to 64 bits and rejects overflow") {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK(sum(most - 1, 1) == most);
  CHECK(sum(least, most) == json(std::int64_t{9223372036854775807}));
  CHECK(sum(std::int64_t{1} << 62, std::int64_t{1} << 62) == std::uint64_t{1} << 63);
  CHECK_THROWS_WITH_AS(sum(most, 1), doctest::Contains("exceeds the range of 64-bit integers"), CollectiveError);
  CHECK_THROWS_AS(sum(least, -1), CollectiveError);
}

TEST_CASE("sum rejects incompatible values") {
  CHECK_THROWS_WITH_AS(sum(1, "x"), doctest::Contains("cannot add values of type number and type string"),
                       CollectiveError);
  CHECK_THROWS_AS(sum(true, true), CollectiveError);
  CHECK_THROWS_AS(sum(nullptr, nullptr), CollectiveError);
  CHECK_THROWS_AS(sum(json::array(), json::object()), CollectiveError);
  const auto errors = run_threads(2, [](Communicator& communicator) {
    CHECK_THROWS_WITH_AS(communicator.allreduce(communicator.rank() == 0 ? json(1) : json("x")),
                         doctest::Contains("cannot add"), CollectiveError);
    CHECK(communicator.allreduce(json(1)) == 2);
  });
  CHECK(errors == no_errors(2));
}

}  // namespace collective_test
