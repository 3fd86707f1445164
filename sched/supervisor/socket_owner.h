// Whose process is at the other end of a connection within this machine.
//
// Threading: free of state.
#pragma once

#include <sys/types.h>

#include <boost/asio/ip/tcp.hpp>
#include <optional>

namespace adaptdl::sched {

// The two ends of a connection, as its server sees them.
struct ConnectionEnds {
  boost::asio::ip::tcp::endpoint client, server;
};

// Returns the user whose socket is the client's end. None if it is of another machine or network namespace, is not fully
// open any more (the kernel takes what a process has closed for root's), or the kernel cannot tell.
std::optional<uid_t> client_owner(const ConnectionEnds& ends);

}  // namespace adaptdl::sched
