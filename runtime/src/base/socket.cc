#include "base/socket.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "adaptdl/error.h"

namespace adaptdl::net {
namespace {

constexpr std::chrono::seconds kConnectAttempt{3};
constexpr int kMaxPollMs = 60000;

const std::string kLoopback = "127.0.0.1";

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns the addresses of `host`. If there are none, sets `why` to the reason.
Addresses resolve(const std::string& host, std::uint16_t port, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  // "localhost" must not need a lookup (RFC 6761), and a minimal container has no /etc/hosts that defines it.
  const std::string& name = host == "localhost" ? kLoopback : host;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    why = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    found = nullptr;
  }
  return {found, ::freeaddrinfo};
}

bool is_loopback(const in_addr& address) { return (ntohl(address.s_addr) >> 24) == 127; }

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) return is_loopback(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

void set_option(int fd, int level, int option, int value) {
  // Ignore errors: if an option cannot be set, connections are slower or failures are noticed later, but nothing
  // breaks.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, patience.idle_seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, patience.interval_seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, patience.probes);
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address any_address(int family, std::uint16_t port) {
  Address any;
  any.storage.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(any.get())->sin6_port = htons(port);
    any.size = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in*>(any.get())->sin_port = htons(port);
    any.size = sizeof(sockaddr_in);
  }
  return any;
}

std::uint16_t local_port(int fd) {
  Address own;
  if (::getsockname(fd, own.get(), &own.size) != 0) return 0;
  return ntohs(own.storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(own.get())->sin6_port
                                                 : reinterpret_cast<sockaddr_in*>(own.get())->sin_port);
}

std::string text(Address& address) {
  char host[NI_MAXHOST] = "an unknown address";
  ::getnameinfo(address.get(), address.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

// Binds and listens. On failure, returns an invalid descriptor and sets errno.
Fd try_listen(const sockaddr* address, socklen_t size) {
  Fd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return {};
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), address, size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

// A socket that connects to a free local port can connect to itself: both ends have the same address, and no process is
// listening.
bool connected_to_itself(int fd) {
  Address own, other;
  return ::getsockname(fd, own.get(), &own.size) == 0 && ::getpeername(fd, other.get(), &other.size) == 0 &&
         own.size == other.size && std::memcmp(own.get(), other.get(), own.size) == 0;
}

Fd connect_once(const addrinfo& address, Clock::time_point deadline, std::string& why) {
  Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int error = fd ? 0 : errno;
  if (fd && ::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    socklen_t size = sizeof error;
    if (!wait_until_ready(fd.get(), POLLOUT, deadline))
      error = ETIMEDOUT;
    else if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
      error = errno;
  }
  if (error == 0 && connected_to_itself(fd.get())) error = ECONNREFUSED;
  if (error != 0) {
    why = std::strerror(error);
    return {};
  }
  tune(fd.get());
  return fd;
}

}  // namespace

std::string endpoint(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string address(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return is_loopback(v4);
  in6_addr v6{};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

Listener listen_on(const std::string& host, std::uint16_t port) {
  std::string why;
  const Addresses literal = resolve(host, port, AI_NUMERICHOST, why);
  const Addresses local = host == "localhost" ? resolve(host, port, 0, why) : Addresses{nullptr, ::freeaddrinfo};
  const addrinfo* address = literal ? literal.get() : local.get();

  Fd fd;
  if (address && is_loopback(address->ai_addr)) {
    fd = try_listen(address->ai_addr, address->ai_addrlen);
  } else {
    const bool only_v4 = address && address->ai_family == AF_INET;
    Address any = any_address(only_v4 ? AF_INET : AF_INET6, port);
    fd = try_listen(any.get(), any.size);
    if (!fd && !only_v4 && errno != EADDRINUSE) {  // the machine may not support IPv6
      any = any_address(AF_INET, port);
      fd = try_listen(any.get(), any.size);
    }
  }
  if (!fd && errno == EADDRINUSE)
    throw Error(
        fmt::format("port {} is in use by another process, such as a replica of another job, or another replica that "
                    "claims rank 0; choose another port (ADAPTDL_MASTER_PORT)",
                    port));
  if (!fd) throw Error(fmt::format("cannot listen on {}: {}", endpoint(host, port), std::strerror(errno)));
  const std::uint16_t bound = local_port(fd.get());
  return {std::move(fd), bound};
}

Listener listen_at(const std::string& address) {
  std::string why;
  const Addresses literal = resolve(address, 0, AI_NUMERICHOST, why);
  if (!literal) throw Error(fmt::format("cannot listen on '{}': {}", address, why));
  Fd fd = try_listen(literal->ai_addr, literal->ai_addrlen);
  if (!fd) throw Error(fmt::format("cannot listen on '{}': {}", address, std::strerror(errno)));
  const std::uint16_t bound = local_port(fd.get());
  return {std::move(fd), bound};
}

Fd accept_from(int listener, std::string& from) {
  Address other;
  Fd fd(::accept4(listener, other.get(), &other.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) return fd;
  tune(fd.get());
  from = text(other);
  return fd;
}

Fd connect_to(const std::string& host, std::uint16_t port, Clock::time_point deadline, std::string& why) {
  const std::string_view target = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : std::string_view(host);
  const Addresses addresses = resolve(std::string(target), port, 0, why);
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next) {
    Fd fd = connect_once(*address, std::min(deadline, Clock::now() + kConnectAttempt), why);
    if (fd) return fd;
  }
  return {};
}

bool host_is_silent(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_retransmits >= patience.retransmits;
}

bool wait_until_ready(int fd, short events, Clock::time_point deadline) {
  pollfd polled{fd, events, 0};
  while (::poll(&polled, 1, poll_timeout(deadline, kMaxPollMs)) <= 0)
    if (Clock::now() >= deadline) return false;
  return true;
}

int poll_timeout(Clock::time_point deadline, int max_ms) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, max_ms));
}

}  // namespace adaptdl::net
