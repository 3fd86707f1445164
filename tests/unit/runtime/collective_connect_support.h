// Shared by the tests of how replicas connect: sockets that act as strangers, other services, or replicas, and the
// messages that are exchanged before a replica is accepted, encoded as in docs/formats.md.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "adaptdl/collective.h"
#include "base/little_endian.h"
#include "collective_support.h"

namespace collective_connect_support {

using namespace adaptdl;
using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;

inline sockaddr_in loopback(std::uint16_t port) {
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

// Returns an opening, the first message of either end, encoded as in docs/formats.md.
inline std::string opening(std::uint32_t version = 3) {
  return "adaptdl\n" + little_endian(version) + std::string(32, 'n');
}

// Seals a request or an answer with the proof of a job that has no secret.
inline std::string sealed(const std::string& body) {
  return std::string(32, '\0') + little_endian(static_cast<std::uint32_t>(body.size())) + body;
}

inline std::string request(std::uint32_t rank, std::uint32_t size, const std::string& job = "",
                           std::uint64_t max_message = 64 << 20) {
  return sealed(little_endian(rank) + little_endian(size) + little_endian(max_message) + job);
}

// Returns everything that a replica sends before it is accepted.
inline std::string hello(std::uint32_t rank, std::uint32_t size, const std::string& job = "",
                         std::uint64_t max_message = 64 << 20) {
  return opening() + request(rank, size, job, max_message);
}

inline std::string accepted() { return sealed(little_endian(std::uint32_t{0})); }

// Performs the handshake with rank 1 of a job with two replicas, but does not send the answer.
inline void let_in(const Socket& connection) {
  connection.receive(opening().size());
  connection.send(opening());
  connection.receive(request(1, 2).size());
}

// Returns the error of a replica that connects to a service which runs `serve` for each connection.
inline std::string error_with_root(const std::function<void(const Socket& connection)>& serve,
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

}  // namespace collective_connect_support
