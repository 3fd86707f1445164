// TCP sockets for the collective calls: ownership, listening, connecting, and the signs of a lost host.
//
// All sockets are non-blocking and closed on exec. Threading: the functions keep no state.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace adaptdl::net {

using Clock = std::chrono::steady_clock;

// Owns a file descriptor; -1 is none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;
  // Gives it up to the caller.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// "host:port", with brackets around an IPv6 address.
std::string endpoint(const std::string& host, std::uint16_t port);

// Whether that is "localhost" or a loopback address, with or without brackets. Names are not looked up.
bool is_loopback(std::string_view host);

struct Listener {
  Fd fd;
  std::uint16_t port = 0;
};

// Listens where peers that are told `host` will look for it: on that address if it is a loopback one (or "localhost"),
// else on all interfaces, because the name of a host may well resolve to a loopback address on that host itself. `port`
// 0 takes a free one. A socket that only holds the port (bound with SO_REUSEADDR, not listening) is no obstacle. Throws
// Error.
Listener listen_on(const std::string& host, std::uint16_t port);

// Listens on a free port of `address`, an IP address of this machine, and nowhere else. Throws Error.
Listener listen_at(const std::string& address);

// The next connection waiting on `listener`, and the address it comes `from`; or none, and errno says why.
Fd accept_from(int listener, std::string& from);

// Tries each address of `host` once. An unspecified address (0.0.0.0, ::) stands for this machine. Returns no
// descriptor and says why in `why` when none answers by `deadline`.
Fd connect_to(const std::string& host, std::uint16_t port, Clock::time_point deadline, std::string& why);

// How long another host may be silent before it counts as lost: 25 s.
struct Patience {
  int idle_seconds = 10, interval_seconds = 5, probes = 3;  // TCP keepalive, which watches an idle connection
  int retransmits = 7;  // of what was sent; their intervals double from 0.2 s on: 0.2 * (2^7 - 1) s
};
// Tests shorten it, before they connect.
inline Patience patience;

// Whether the other host has not acknowledged what was sent to it for so long. The kernel alone would go on for a
// quarter of an hour. (TCP_USER_TIMEOUT would do for idle connections too, but it also ends connections to a live peer
// that is slow to read.)
bool host_is_silent(int fd);

// Waits until the socket is ready for `events` of poll(2), or has failed. Returns false at the deadline.
bool wait_until_ready(int fd, short events, Clock::time_point deadline);

// Milliseconds until `deadline` for poll(2), rounded up, from 0 to `most`.
int poll_timeout(Clock::time_point deadline, int most);

}  // namespace adaptdl::net
