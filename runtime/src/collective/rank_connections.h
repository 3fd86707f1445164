// Connections on which replicas prove that they belong to the same job and send their ranks.
//
// Threading: both functions may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/socket.h"
#include "protocol/handshake.h"

namespace adaptdl {

// Waits until each of `ranks` has connected to the listener, then closes the listener and returns the connections.
// Throws CollectiveError at the deadline, when the descriptor `stop`, if not -1, becomes readable, and when `give_up`,
// which is called every second, returns true.
std::map<int, Fd> accept_ranks(
    net::Listener& listener, const handshake::Terms& terms, const std::set<int>& ranks, net::Clock::time_point deadline,
    int stop, const std::function<bool()>& give_up = [] { return false; });

// Connects as `rank` to a replica that is waiting in accept_ranks. Throws CollectiveError if it cannot be reached, if
// it is not a replica that is waiting for this rank, and at the deadline.
Fd connect_as(int rank, const std::string& address, std::uint16_t port, const handshake::Terms& terms,
              net::Clock::time_point deadline);

}  // namespace adaptdl
