#include "local/base/port.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace {

constexpr int kFirst = 10000;  // many services have well-known ports below this
constexpr int kLast = 65535;

// Binds a socket on all addresses to `port` (0: any free port). Returns the port, or nullopt if that failed.
std::optional<std::uint16_t> try_bind(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = any6.sin6_port;
  // The socket does not set SO_REUSEADDR, and uses both versions of IP if possible: if it can bind, any program can.
  Fd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket) {
    socklen_t size = sizeof any6;
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&any6), size) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&any6), &size) == 0) {
      return ntohs(any6.sin6_port);
    }
    if (errno == EADDRINUSE) return std::nullopt;
  }
  socket = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t size = sizeof any4;
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&any4), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&any4), &size) != 0) {
    return std::nullopt;
  }
  return ntohs(any4.sin_port);
}

}  // namespace

std::pair<int, int> ephemeral_ports(const std::filesystem::path& file) {
  std::ifstream in(file);
  int first = 0, last = 0;
  if (in >> first >> last && first > 0 && first <= last && last <= kLast) return {first, last};
  return {32768, 60999};
}

// Other processes on this machine see the reservation as a socket in the abstract namespace, which the kernel removes
// when its owner ends. Where such sockets are not allowed, ports are not reserved.
bool ReservedPort::reserve(int port) {
  const auto number = try_bind(port);
  if (!number) return false;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("adaptdl-port-{}", *number);
  std::ranges::copy(text, name.sun_path + 1);  // an abstract name begins with a null character
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  reservation_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (::bind(reservation_.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 && errno == EADDRINUSE) return false;
  number_ = *number;
  return true;
}

ReservedPort::ReservedPort(std::pair<int, int> ephemeral) {
  std::vector<int> candidates;
  for (int port = kFirst; port <= kLast; ++port) {
    if (port < ephemeral.first || port > ephemeral.second) candidates.push_back(port);
  }
  std::random_device random;
  constexpr int kTries = 200;
  for (int i = 0; i < kTries && !candidates.empty(); ++i) {
    const std::size_t pick = std::uniform_int_distribution<std::size_t>(0, candidates.size() - 1)(random);
    if (reserve(candidates[pick])) return;
  }
  for (int i = 0; i < kTries; ++i) {
    if (reserve(0)) return;
  }
  throw Error(fmt::format("cannot find a free TCP port for the replicas: {}", std::strerror(errno)));
}

}  // namespace adaptdl::sched
