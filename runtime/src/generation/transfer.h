// Transfer of states from one replica to another over TCP.
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

// What each receiver gets, by rank: all states, or only those with these names.
using Orders = std::map<int, std::optional<std::set<std::string>>>;

// Waits until all receivers are connected, and sends to one after another; drops connections that do not prove to have
// `secret`. Throws CollectiveError if a receiver leaves or does not have its states by `timeout`.
void send_states(net::Listener& listener, const std::string& secret, const Orders& orders, int replicas,
                 std::chrono::milliseconds timeout);

// Connects to the sender. The stream throws CollectiveError if a state does not arrive by `timeout` or the sender is
// lost.
std::shared_ptr<checkpoint::StateStream> receive_states(const std::string& address, std::uint16_t port,
                                                        const std::string& secret, int rank,
                                                        std::chrono::milliseconds timeout);

}  // namespace adaptdl::generation
