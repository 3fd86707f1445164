// Tests how replicas find each other, and the errors if they do not.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "adaptdl/collective.h"
#include "base/little_endian.h"
#include "collective_connect_support.h"
#include "collective_support.h"

namespace collective_connect_test {

using namespace adaptdl;
using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;
using namespace collective_connect_support;
using nlohmann::json;

namespace {

std::string frame(int type, int kind, std::uint64_t sequence, const std::string& payload,
                  std::optional<std::uint64_t> length = {}) {
  return std::string{static_cast<char>(type), static_cast<char>(kind)} + std::string(6, '\0') +
         little_endian(sequence) + little_endian(length.value_or(payload.size())) + payload;
}

}  // namespace

TEST_CASE("rank 0 can listen on a port that the launcher has bound") {
  Socket holder;
  Options options = test_options(2);
  options.master_port = holder.bind();
  const auto errors =
      run_threads(options, [](Communicator& communicator) { CHECK(communicator.allreduce(json(1)) == 2); });
  CHECK(errors == no_errors(2));
}

TEST_CASE("replicas wait for rank 0 to start" * doctest::test_suite("slow")) {
  Socket holder;
  Options options = test_options(2);
  options.master_port = holder.bind();
  std::thread peer([options]() mutable {
    options.rank = 1;
    CHECK(error_of([&] { Communicator(options).teardown(); }) == "");
  });
  std::this_thread::sleep_for(400ms);
  Communicator(options).teardown();
  peer.join();
}

TEST_CASE("the timeout of a call does not limit how long replicas wait for each other to start") {
  ::setenv("ADAPTDL_COLLECTIVE_TIMEOUT", "20ms", 1);
  Options options = options_from_env();
  ::unsetenv("ADAPTDL_COLLECTIVE_TIMEOUT");
  options.master_addr = "127.0.0.1";
  options.size = 2;
  std::optional<Communicator> other;  // remains connected until rank 0 has started
  std::jthread late;
  const std::string error = error_of([&] {
    const Communicator root(options, [&](std::uint16_t port) {
      late = std::jthread([&other, options, port]() mutable {
        std::this_thread::sleep_for(3 * options.timeout);
        options.master_port = port;
        options.rank = 1;
        error_of([&] { other.emplace(options); });  // rank 0 reports why this replica cannot connect
      });
    });
  });
  CHECK(error == "");
}

TEST_CASE("the master address can be a host name, an IPv4 or IPv6 address, or a wildcard") {
  for (const char* address : {"localhost", "127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "::"}) {
    CAPTURE(address);
    Options options = test_options(2);
    options.master_addr = address;
    const auto errors =
        run_threads(options, [](Communicator& communicator) { CHECK(communicator.allreduce(json(1)) == 2); });
    CHECK(errors == no_errors(2));
  }
}

TEST_CASE("rank 0 listens only on loopback if the master address is a loopback address") {
  const auto listens_on = [](const std::string& master) {
    Options options = test_options(2);
    options.master_addr = master;
    options.connect_timeout = 100ms;
    std::string where;
    error_of([&] {
      Communicator communicator(options, [&](std::uint16_t port) {
        std::ifstream table("/proc/net/tcp");
        for (std::string line; std::getline(table, line);) {
          const auto at = line.find(fmt::format(":{:04X} 00000000:0000 0A", port));
          if (at != std::string::npos) where = line.substr(at - 8, 8);
        }
      });
    });
    return where;
  };
  CHECK(listens_on("127.0.0.1") == "0100007F");
  CHECK(listens_on("localhost") == "0100007F");
  CHECK(listens_on("0.0.0.0") == "00000000");
}

TEST_CASE("connect_pause limits the pause between connection attempts") {
  int tries = 0;
  const auto hang_up_first = [&](const Socket& connection) {
    if (++tries > 200) connection.send("no replica\n");
  };
  check_contains(error_with_root(hang_up_first, 20s, 1ms), "is not a replica of adaptdl");
  CHECK(tries == 201);
}

TEST_CASE("the error for a connect timeout names the missing replicas and the rejected one" *
          doctest::test_suite("slow")) {
  Options options = test_options(4);
  options.connect_timeout = 4s;  // long enough for replica 2 and the stranger to connect
  std::string peer_error;
  std::thread peer;
  const std::string error = error_of([&] {
    Communicator communicator(options, [&](std::uint16_t port) {
      peer = std::thread([&, options, port]() mutable {
        options.master_port = port;
        options.rank = 2;
        options.connect_timeout = 30s;
        peer_error = error_of([&] { Communicator{options}; });
      });
      const Socket stranger = Socket::connected(port);
      stranger.send(hello(9, 4));
    });
  });
  peer.join();
  CHECK_MESSAGE(error.find("replicas 1, 3 of 4 did not connect to port ") == 0, error);
  check_contains(error, "within 4s; a replica at 127.0.0.1 was refused: rank 9 cannot join");
  CHECK(peer_error == error);
}

TEST_CASE("the error for a rank 0 whose address cannot be reached or resolved contains the address" *
          doctest::test_suite("slow")) {
  Socket holder;
  Options options = test_options(2);
  options.rank = 1;
  options.connect_timeout = 300ms;
  options.master_port = holder.bind();
  const auto start = Clock::now();
  CHECK(error_of([&] { Communicator{options}; }) ==
        fmt::format("replica 1 could not reach replica 0 at 127.0.0.1:{} within 0.3s (Connection refused); check that "
                    "replica 0 is running and that ADAPTDL_MASTER_ADDR and ADAPTDL_MASTER_PORT are correct",
                    options.master_port));
  CHECK(Clock::now() - start < 20s);
  options.master_addr = "no-such-host.invalid";
  CHECK_THROWS_WITH_AS(Communicator{options}, doctest::Contains("replica 0 at no-such-host.invalid:"), CollectiveError);
}

TEST_CASE("connecting to a service other than rank 0 fails without hanging" * doctest::test_suite("slow")) {
  check_contains(error_with_root([](const Socket& c) { c.send("HTTP/1.1 400 Bad Request\r\n\r\n"); }),
                 "is not a replica of adaptdl");
  check_contains(error_with_root([](const Socket&) {}, 4s), "(it closed the connection)");
  check_contains(error_with_root([](const Socket& c) { c.receive_all(); }, 1s), "does not answer");
  CHECK(error_with_root([](const Socket& c) {
          let_in(c);
          c.send(accepted());
        }).find("replica 0 left the job while its peers were connecting") == 0);
}

TEST_CASE("a protocol violation by rank 0 is reported as an error") {
  const std::string started = accepted() + frame(3, 1, 0, "");
  const auto error_after = [&](const std::string& frames) {
    return error_with_root([&](const Socket& connection) {
      let_in(connection);
      connection.send(started + frames);
      connection.receive_all();
    });
  };
  const std::string broke = "replica 0 violated the protocol: it ";
  CHECK(error_after(frame(1, 1, 1, "x")) == broke + "sent a result out of turn");  // the result is sent before the call
  CHECK(error_after(frame(9, 1, 1, "x")) == broke + "sent an invalid frame");
  CHECK(error_after(frame(1, 1, 1, "", std::uint64_t{1} << 63))
            .find(broke + "sent a frame of 9223372036854775808 bytes") == 0);
  CHECK(error_after(frame(4, 1, 0, "enough")) == "enough");
  CHECK(error_after(frame(4, 1, 0, "")) == "replica 0 aborted the job");
}

TEST_CASE("invalid options are rejected") {
  const auto with = [](const std::function<void(Options&)>& change) {
    Options options = test_options(2);
    options.master_port = 1;
    change(options);
    Communicator communicator(options);
  };
  CHECK_THROWS_AS(with([](Options& o) { o.size = 0; }), UsageError);
  CHECK_THROWS_WITH_AS(with([](Options& o) { o.rank = 2; }),
                       "invalid collective options: the rank must be from 0 to 1 with 2 replicas, got 2", UsageError);
  CHECK_THROWS_AS(with([](Options& o) { o.rank = -1; }), UsageError);
  CHECK_THROWS_AS(with([](Options& o) { o.rank = 1, o.master_port = 0; }), UsageError);
  CHECK_THROWS_AS(with([](Options& o) { o.master_addr = ""; }), UsageError);
  CHECK_THROWS_AS(with([](Options& o) { o.timeout = 0ms; }), UsageError);
  CHECK_THROWS_AS(with([](Options& o) { o.connect_timeout = -1ms; }), UsageError);
  CHECK_THROWS_AS(with([](Options& o) { o.connect_pause = 0ms; }), UsageError);
  CHECK_THROWS_AS(with([](Options& o) { o.job = std::string(1025, 'x'); }), UsageError);
}

}  // namespace collective_connect_test
