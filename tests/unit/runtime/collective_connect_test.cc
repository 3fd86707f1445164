// Tests how replicas find each other, and that connections from strangers do not disturb them.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>

#include "adaptdl/collective.h"
#include "base/little_endian.h"
#include "collective_support.h"

namespace collective_connect_test {

using namespace adaptdl;
using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;
using nlohmann::json;

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A plain socket that acts as a stranger, another service, or the launcher.
class Socket {
 public:
  Socket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

  static Socket connected(std::uint16_t port) {
    Socket socket;
    const sockaddr_in address = loopback(port);
    CHECK(::connect(socket.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return socket;
  }
  // Binds to a free loopback port, and returns it.
  std::uint16_t bind() {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    CHECK(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    CHECK(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return ntohs(address.sin_port);
  }
  void listen() { CHECK(::listen(fd_, 16) == 0); }
  Socket accept() { return Socket(::accept(fd_, nullptr, nullptr)); }
  void send(const std::string& bytes) const { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void receive(std::size_t size) const {
    std::string bytes(size, '\0');
    CHECK(::recv(fd_, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  }
  // Returns everything until the other end closes, or "(silence)" after five seconds without data.
  std::string receive_all() const {
    const timeval patience{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string all;
    char buffer[4096];
    for (;;) {
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      if (count > 0) all.append(buffer, static_cast<std::size_t>(count));
      if (count == 0) return all;
      if (count < 0) return errno == ECONNRESET ? all : "(silence)";
    }
  }

 private:
  int fd_;
};

// Returns the opening of either end, spelled out as in docs/formats.md.
std::string opening(std::uint32_t version = 3) { return "adaptdl\n" + little_endian(version) + std::string(32, 'n'); }

// Seals a request or an answer with the proof of a job that has no secret.
std::string sealed(const std::string& body) {
  return std::string(32, '\0') + little_endian(static_cast<std::uint32_t>(body.size())) + body;
}

std::string request(std::uint32_t rank, std::uint32_t size, const std::string& job = "",
                    std::uint64_t max_message = 64 << 20) {
  return sealed(little_endian(rank) + little_endian(size) + little_endian(max_message) + job);
}

// Returns everything that a replica sends before it is accepted.
std::string hello(std::uint32_t rank, std::uint32_t size, const std::string& job = "",
                  std::uint64_t max_message = 64 << 20) {
  return opening() + request(rank, size, job, max_message);
}

std::string accepted() { return sealed(little_endian(std::uint32_t{0})); }

// Accepts rank 1 of a job with two replicas, up to the answer.
void let_in(const Socket& connection) {
  connection.receive(opening().size());
  connection.send(opening());
  connection.receive(request(1, 2).size());
}

std::string frame(int type, int kind, std::uint64_t sequence, const std::string& payload,
                  std::optional<std::uint64_t> length = {}) {
  return std::string{static_cast<char>(type), static_cast<char>(kind)} + std::string(6, '\0') +
         little_endian(sequence) + little_endian(length.value_or(payload.size())) + payload;
}

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

// Returns the error of a replica that connects to a service which runs `serve` for each connection.
std::string error_with_root(const std::function<void(const Socket& connection)>& serve,
                            std::chrono::milliseconds connect_timeout = 30s,
                            std::chrono::milliseconds connect_pause = 200ms, const std::string& secret = "") {
  Socket listener;
  Options options = test_options(2);
  options.rank = 1;
  options.connect_timeout = connect_timeout;
  options.connect_pause = connect_pause;
  options.timeout = 30s;
  options.secret = secret;
  options.master_port = listener.bind();
  listener.listen();
  std::atomic<bool> done{false};
  std::thread service([&] {
    while (!done) {
      const Socket connection = listener.accept();
      if (connection.fd() >= 0 && !done) serve(connection);
    }
  });
  const std::string error = error_of([&] {
    Communicator communicator(options);
    communicator.allreduce(Bytes("x"), join);
  });
  done = true;
  Socket::connected(options.master_port);  // unblocks accept()
  service.join();
  return error;
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
        check_contains(answer(hello(1, 2, "ns/b")), "it belongs to job ns/b, but this is job ns/a");
        check_contains(answer(hello(1, 2, "")), "it belongs to an unnamed job");
        check_contains(answer(hello(1, 2, "ns/a", 5)), "its max_message is 5");
        CHECK(answer(opening(7)).substr(0, 12) == opening().substr(0, 12));
        if (running) check_contains(answer(hello(1, 2, "ns/a")), "rank 1 is already in use by a replica at 127.0.0.1");
      },
      "ns/a");
}

TEST_CASE("replicas and a rank 0 without the job's secret are rejected") {
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

TEST_CASE("a rejected secret is still reported as the reason after replica 0 has exited") {
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
    CHECK_THROWS_WITH_AS(Communicator{options}, doctest::Contains("is in use: another job, or another replica"), Error);
    options.rank = 1;
    options.job = "ns/other";
    CHECK_THROWS_WITH_AS(Communicator{options},
                         doctest::Contains("it belongs to job ns/other, but this is an unnamed job"), CollectiveError);
  });
}

TEST_CASE("rank 0 can listen on a port that the launcher has bound") {
  Socket holder;
  Options options = test_options(2);
  options.master_port = holder.bind();
  const auto errors =
      run_threads(options, [](Communicator& communicator) { CHECK(communicator.allreduce(json(1)) == 2); });
  CHECK(errors == no_errors(2));
}

TEST_CASE("replicas wait for rank 0 to start") {
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

TEST_CASE("the error for a connect timeout names the missing replicas and the rejected one") {
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
  check_contains(error, "within 4 s; a replica at 127.0.0.1 was refused: rank 9 cannot join");
  CHECK(peer_error == error);
}

TEST_CASE("the error for a rank 0 that cannot be reached or resolved contains its address") {
  Socket holder;
  Options options = test_options(2);
  options.rank = 1;
  options.connect_timeout = 300ms;
  options.master_port = holder.bind();
  const auto start = Clock::now();
  CHECK(error_of([&] { Communicator{options}; }) ==
        fmt::format("replica 1 could not reach replica 0 at 127.0.0.1:{} within 0.3 s (Connection refused); check that "
                    "replica 0 is running and that ADAPTDL_MASTER_ADDR and ADAPTDL_MASTER_PORT are correct",
                    options.master_port));
  CHECK(Clock::now() - start < 20s);
  options.master_addr = "no-such-host.invalid";
  CHECK_THROWS_WITH_AS(Communicator{options}, doctest::Contains("replica 0 at no-such-host.invalid:"), CollectiveError);
}

TEST_CASE("connecting to a service other than rank 0 fails without hanging") {
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

TEST_CASE("rank 0 survives running out of file descriptors") {
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
