// Sending states from one replica to another over TCP.
//
// Threading: the functions keep no state.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/stream.h"
#include "socket.h"

namespace adaptdl::generation {

// What each receiver gets, by rank: all states, or those of these names.
using Orders = std::map<int, std::optional<std::set<std::string>>>;

// Serves the receivers one after another, as they come, until all have got theirs; drops connections that do not know
// the `token`. Throws CollectiveError if one is not served by `timeout`, or leaves.
void send_states(net::Listener& listener, std::uint64_t token, const Orders& orders, int replicas,
                 std::chrono::milliseconds timeout);

// The other end, connected. It throws CollectiveError if they do not come by `timeout`, or the sender is lost.
std::shared_ptr<checkpoint::StateStream> receive_states(const std::string& address, std::uint16_t port,
                                                        std::uint64_t token, int rank,
                                                        std::chrono::milliseconds timeout);

}  // namespace adaptdl::generation
