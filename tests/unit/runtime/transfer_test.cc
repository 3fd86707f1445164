// Tests the transfer of states between replicas while strangers connect too.
#include "generation/transfer.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "adaptdl/collective.h"
#include "checkpoint_support.h"
#include "error_of.h"
#include "golden.h"

namespace transfer_test {

using namespace checkpoint_test;
using namespace std::chrono_literals;
using adaptdl::collective::CollectiveError;
using adaptdl::generation::Orders;
using adaptdl::generation::receive_states;
using adaptdl::generation::send_states;
namespace net = adaptdl::net;

namespace {

struct Sender {
  Sender() { model.values = {{"epoch", 7}}, other.values = {{"x", 1}}; }

  std::future<void> serve(const Orders& orders, std::chrono::milliseconds timeout = 30s) {
    return std::async(std::launch::async, [this, orders, timeout] {
      send_states(listener, "the secret", orders, 3, {.timeout = timeout});
    });
  }
  ckpt::Snapshot fetch(int rank, const std::string& secret = "the secret") const {
    return ckpt::read_states(receive_states("127.0.0.1", port, secret, rank, {.timeout = 30s}));
  }
  adaptdl::Fd stranger(const std::string& words) const {
    std::string why;
    adaptdl::Fd fd = net::connect_to("127.0.0.1", port, net::Clock::now() + 10s, why);
    REQUIRE_MESSAGE(fd, why);
    ::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
    return fd;
  }

  const Directory directory;
  MapState model{"model"}, other{"other"};
  net::Listener listener = net::listen_on("127.0.0.1", 0);
  const std::uint16_t port = listener.port;
};

}  // namespace

TEST_CASE("each receiver gets the states selected for it, whichever connects first") {
  Sender sender;
  auto served = sender.serve({{2, std::nullopt}, {1, std::set<std::string>{"other"}}});
  auto second = std::async(std::launch::async, [&] { return sender.fetch(2); });
  ckpt::Snapshot first = sender.fetch(1);
  CHECK_FALSE(first.reader("model"));
  CHECK(first.reader("other")->json("x") == 1);
  CHECK(second.get().reader("model")->json("epoch") == 7);
  served.get();
}

TEST_CASE("silent, incomplete and invalid connections do not prevent a transfer") {
  Sender sender;
  const std::string opening = "adaptdl\n" + std::string("\x03\0\0\0", 4) + std::string(32, 'n');
  std::vector<adaptdl::Fd> strangers;
  for (int i = 0; i < 600; ++i)
    strangers.push_back(sender.stranger(i % 3 == 0 ? "" : i % 3 == 1 ? opening : "GET / HTTP/1.1\r\n\r\n"));
  auto served = sender.serve({{1, std::nullopt}});
  // Each end has a timeout of half a minute, which a few strangers could use up if they were served one after another.
  CHECK(sender.fetch(1).reader("model")->json("epoch") == 7);
  served.get();
}

TEST_CASE("nothing is sent to a receiver that lacks the secret or is not expected") {
  Sender sender;
  auto served = sender.serve({{1, std::nullopt}});
  CHECK_THROWS_WITH_AS(sender.fetch(2), doctest::Contains("it is not waiting for this replica"), CollectiveError);
  auto wrong = std::async(std::launch::async, [&] { return sender.fetch(1, "another secret"); });
  CHECK(wrong.wait_for(300ms) == std::future_status::timeout);  // retries until the sender stops listening
  CHECK(sender.fetch(1).reader("model")->json("epoch") == 7);
  served.get();
  CHECK_THROWS_WITH_AS(wrong.get(), doctest::Contains("cannot reach another replica at"), CollectiveError);
}

TEST_CASE("sending fails after the timeout if a receiver does not connect") {
  Sender sender;
  const adaptdl::Fd stranger = sender.stranger("");  // connects before the sender stops listening
  auto served = sender.serve({{1, std::nullopt}}, 200ms);
  CHECK_GOLDEN(::testing::error_of<CollectiveError>([&] { served.get(); }));
}

TEST_CASE("a transfer ends when there is a newer generation, even while a receiver does not connect or does not read" *
          doctest::test_suite("slow")) {
  Sender sender;
  sender.model.values = {{"large", std::string(std::size_t{64} << 20, 'x')}};  // more than the buffers of a connection
  for (const bool connects : {false, true}) {
    CAPTURE(connects);
    std::atomic<bool> newer = false;
    sender.listener = net::listen_on("127.0.0.1", 0);
    auto served = std::async(std::launch::async, [&] {
      send_states(sender.listener, "the secret", {{1, std::nullopt}}, 3,
                  {.timeout = 1h, .give_up = [&] { return newer.load(); }});
    });
    const auto received =
        connects ? receive_states("127.0.0.1", sender.listener.port, "the secret", 1, {.timeout = 1h}) : nullptr;
    CHECK(served.wait_for(50ms) == std::future_status::timeout);
    newer = true;
    CHECK_GOLDEN(::testing::error_of<CollectiveError>([&] { served.get(); }));
  }
}

}  // namespace transfer_test
