// TCP sockets for collective calls: ownership, listening, connecting, and detecting a lost host.
//
// All sockets are non-blocking and close on exec. Threading: the functions may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace adaptdl::net {

using Clock = std::chrono::steady_clock;

// Returns "host:port", with brackets around an IPv6 address.
std::string endpoint(const std::string& host, std::uint16_t port);

// Returns whether `host` is "localhost" or a loopback address, with or without brackets. Other names are not resolved.
bool is_loopback(std::string_view host);

struct Listener {
  Fd fd;
  std::uint16_t port = 0;
};

// Listens so that peers can connect to `host`: only on that address if it is a loopback address or "localhost", and
// otherwise on all interfaces, because a host's own name may resolve to a loopback address on that host. If `port` is
// 0, chooses a free port. The port may be reserved by a socket that is bound with SO_REUSEADDR but does not listen.
// Throws Error.
Listener listen_on(const std::string& host, std::uint16_t port);

// Listens only on `address`, which must be an IP address of this machine, on a free port. Throws Error.
Listener listen_at(const std::string& address);

// Accepts the next pending connection and sets `from` to the peer's address. On failure, returns an invalid descriptor
// and sets errno.
Fd accept_from(int listener, std::string& from);

// Tries each address of `host` once. An unspecified address (0.0.0.0, ::) means this machine. If none answers by
// `deadline`, returns an invalid descriptor and sets `why` to the reason.
Fd connect_to(const std::string& host, std::uint16_t port, Clock::time_point deadline, std::string& why);

// How long another host may be silent before it is considered lost: 25 s.
struct Patience {
  int idle_seconds = 10, interval_seconds = 5, probes = 3;  // TCP keepalive, which checks idle connections
  int retransmits = 7;  // retransmissions of sent data, at intervals that double from 0.2 s: 0.2 * (2^7 - 1) s
};
// Tests reduce these values before they connect.
inline Patience patience;

// Returns whether the other host has failed to acknowledge sent data for longer than `patience` allows. By default, the
// kernel would keep retransmitting for a quarter of an hour. (TCP_USER_TIMEOUT would also cover idle connections, but
// it ends connections to a live peer that reads slowly.)
bool host_is_silent(int fd);

// Waits until the socket is ready for the `events` of poll(2) or has failed. Returns false at the deadline.
bool wait_until_ready(int fd, short events, Clock::time_point deadline);

// Returns the milliseconds until `deadline`, rounded up and limited to 0..`max_ms`, as a timeout for poll(2).
int poll_timeout(Clock::time_point deadline, int max_ms);

}  // namespace adaptdl::net
