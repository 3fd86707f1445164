#include "group/rendezvous_store.h"

#include <sys/socket.h>

#include <future>
#include <string>
#include <vector>

#include "adaptdl/collective.h"
#include "base/socket.h"
#include "group/rendezvous_message.h"
#include "group/rendezvous_server.h"
#include "protocol/handshake.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace rendezvous_store_test {

namespace {

using namespace std::chrono_literals;
using adaptdl::RendezvousServer;
using adaptdl::RendezvousStore;
using adaptdl::to_message;
using adaptdl::collective::CollectiveError;
using Value = RendezvousStore::Value;
namespace net = adaptdl::net;

struct Served {
  c10::intrusive_ptr<RendezvousStore> store(std::chrono::milliseconds timeout = 60s) const {
    return c10::make_intrusive<RendezvousStore>(adaptdl::RendezvousPlace{"127.0.0.1", server->port(), server->secret()},
                                                timeout, nullptr);
  }
  std::shared_ptr<RendezvousServer> server = std::make_shared<RendezvousServer>("127.0.0.1");
};

// A connection to the server that does not come from a store.
struct Stranger {
  explicit Stranger(const RendezvousServer& server) {
    std::string why;
    fd = net::connect_to("127.0.0.1", server.port(), net::Clock::now() + 10s, why);
    REQUIRE_MESSAGE(fd, why);
  }
  // Returns the number of bytes that the server sends before it closes the connection.
  std::size_t received_after(const std::string& bytes) const {
    REQUIRE(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    std::size_t received = 0;
    for (const auto deadline = net::Clock::now() + 30s; net::Clock::now() < deadline;) {
      char buffer[1000];
      const ssize_t size = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (size == 0 || (size < 0 && !adaptdl::would_block())) return received;
      if (size < 0)
        std::this_thread::sleep_for(5ms);
      else
        received += static_cast<std::size_t>(size);
    }
    FAIL("the connection stays open");
    return received;
  }
  adaptdl::Fd fd;
};

}  // namespace

TEST_CASE("stores of one server share keys with LibTorch's semantics") {
  const Served served;
  const auto one = served.store(), other = served.store();
  const Value value{0, 255, 7}, next{9}, none{};
  one->set("a/key", value);
  CHECK(other->get("a/key") == value);
  CHECK(other->check({"a/key"}));
  CHECK_FALSE(other->check({"a/key", "missing"}));
  CHECK(one->add("count", 5) == 5);
  CHECK(other->add("count", -7) == -2);
  CHECK(one->get("count") == Value{'-', '2'});
  CHECK(one->compareSet("a/key", next, next) == value);
  CHECK(one->compareSet("a/key", value, next) == next);
  CHECK(one->compareSet("new", value, next) == value);
  CHECK_FALSE(one->check({"new"}));
  CHECK(one->compareSet("new", none, next) == next);
  CHECK(one->getNumKeys() == 3);
  CHECK(one->deleteKey("new"));
  CHECK_FALSE(one->deleteKey("new"));
  CHECK(one->clone()->getNumKeys() == 2);
}

TEST_CASE("a value larger than one read is transferred completely") {
  const Served served;
  const Value large(1 << 20, 42);
  served.store()->set("large", large);
  CHECK(served.store()->get("large") == large);
}

TEST_CASE("wait returns when its last key is set or times out, and the store remains usable") {
  const Served served;
  const auto waiting = served.store(), setting = served.store();
  auto found = std::async(std::launch::async, [&] { waiting->wait({"one", "two"}); });
  setting->set("one", {1});
  CHECK(found.wait_for(100ms) == std::future_status::timeout);
  setting->set("two", {2});
  found.get();
  waiting->wait({});
  CHECK_THROWS_AS(waiting->wait({"three"}, 50ms), CollectiveError);
  setting->set("three", {3});
  CHECK(waiting->get("one") == Value{1});
}

TEST_CASE("a client without the secret is disconnected and does not affect others" * doctest::test_suite("slow")) {
  const Served served;
  const auto store = served.store();
  store->set("key", {1});
  const std::string opening = adaptdl::handshake::ConnectingEnd({}, "", 0).begin();
  const auto accepted = opening.size();
  CHECK(Stranger(*served.server).received_after(opening + std::string(36, '\0')) == accepted);
  CHECK(Stranger(*served.server).received_after(opening + std::string(32, '\0') + "\xff\xff\xff\xff") == accepted);
  // A length that exceeds the message, which made TCPStore allocate 3 GiB.
  CHECK(Stranger(*served.server).received_after(std::string("\x00\x00\x00\xc0", 4)) == 0);
  CHECK(Stranger(*served.server).received_after("GET / HTTP/1.1\r\n\r\n") == 0);
  const RendezvousServer hasty("127.0.0.1", 1s);
  CHECK(Stranger(hasty).received_after("a") == 0);  // nothing more is sent
  CHECK(store->get("key") == Value{1});

  const auto other = c10::make_intrusive<RendezvousStore>(
      adaptdl::RendezvousPlace{"127.0.0.1", served.server->port(), "another secret"}, 500ms, nullptr);
  CHECK_THROWS_AS(other->get("key"), CollectiveError);
}

TEST_CASE("an invalid request closes only its own connection") {
  const Served served;
  const auto store = served.store();
  const auto received_after = [&](const std::string& request) {
    const Stranger client(*served.server);
    adaptdl::handshake::ConnectingEnd end(adaptdl::rendezvous_terms(served.server->secret()), "", 0);
    REQUIRE(adaptdl::handshake::run(end, client.fd.get(), [] {
              std::this_thread::sleep_for(5ms);
              return true;
            }) == adaptdl::handshake::Step::kProved);
    return client.received_after(request);
  };
  CHECK(received_after(to_message("\xff")) == 0);
  CHECK(received_after(to_message("\xa1\x62op\x63xyz")) == 0);
  CHECK(received_after(std::string("\xff\xff\xff\xff", 4)) == 0);
  store->set("word", {'x'});
  CHECK_THROWS_AS(store->add("word", 1), CollectiveError);
  CHECK(store->add("number", 1) == 1);
}

TEST_CASE("requests fail instead of hanging after the server is gone") {
  Served served;
  const auto store = served.store(), waiting = served.store();
  store->set("key", {1});
  waiting->set("connected", {1});
  auto waits = std::async(std::launch::async, [&] { waiting->wait({"never"}); });
  std::this_thread::sleep_for(100ms);
  served.server.reset();
  CHECK_THROWS_AS(waits.get(), CollectiveError);
  CHECK_THROWS_AS(store->get("key"), CollectiveError);
}

}  // namespace rendezvous_store_test
