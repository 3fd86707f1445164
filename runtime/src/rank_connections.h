// Connections between replicas that prove to be of one job, and say which rank they are.
//
// Threading: the functions keep no state.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "handshake.h"
#include "socket.h"

namespace adaptdl {

// Waits until each of `ranks` is connected to the listener, and closes it. Throws CollectiveError at the deadline, or
// when the descriptor `stop` can be read, if there is one (-1: none).
std::map<int, net::Fd> accept_ranks(net::Listener& listener, const handshake::Terms& terms, const std::set<int>& ranks,
                                    net::Clock::time_point deadline, int stop = -1);

// Connects as `rank` to one who waits for it like that. Throws CollectiveError if it cannot be reached, or is no
// replica that waits for this one, and at the deadline.
net::Fd connect_as(int rank, const std::string& address, std::uint16_t port, const handshake::Terms& terms,
                   net::Clock::time_point deadline);

}  // namespace adaptdl
