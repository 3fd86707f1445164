// Transfer of states from one replica to another over TCP.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/socket.h"
#include "checkpoint/stream.h"

namespace adaptdl::generation {

// The states to send to each receiver, by its rank: all states (nullopt), or only the states with these names.
using Orders = std::map<int, std::optional<std::set<std::string>>>;

// Waits until all receivers are connected, and then sends the states to one receiver after another. Drops connections
// that do not prove that they know `secret`. Throws CollectiveError if a receiver leaves or has not received its states
// within `timeout`.
void send_states(net::Listener& listener, const std::string& secret, const Orders& orders, int replicas,
                 std::chrono::milliseconds timeout);

// Connects to the sender. The stream throws CollectiveError if a state does not arrive within `timeout` or the sender
// is lost.
std::shared_ptr<checkpoint::StateStream> receive_states(const std::string& address, std::uint16_t port,
                                                        const std::string& secret, int rank,
                                                        std::chrono::milliseconds timeout);

}  // namespace adaptdl::generation
