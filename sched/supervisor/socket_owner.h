// Determines which user's process is at the other end of a connection within this machine.
#pragma once

#include <sys/types.h>

#include <boost/asio/ip/tcp.hpp>
#include <optional>

namespace adaptdl::sched {

// The two ends of a connection, as its server sees them.
struct ConnectionEnds {
  boost::asio::ip::tcp::endpoint client, server;
};

// Returns the user who owns the socket at the client's end. Returns nullopt if the socket is on another machine or in
// another network namespace, if it is no longer fully open (the kernel reports that root owns a socket that a process
// has closed), or if the kernel cannot determine the user.
std::optional<uid_t> client_owner(const ConnectionEnds& ends);

}  // namespace adaptdl::sched
