// Transfer of states from one replica to another over TCP.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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

// How long a transfer may wait.
struct TransferLimits {
  std::chrono::milliseconds timeout{};                   // for the whole transfer
  std::function<bool()> give_up = [] { return false; };  // called every second while receivers or bytes are awaited
};

// Waits until all receivers are connected, and then sends the states to one receiver after another. Drops connections
// that do not prove that they know `secret`. Throws CollectiveError if a receiver or its host is lost, or if the limits
// are exceeded.
void send_states(net::Listener& listener, const std::string& secret, const Orders& orders, int replicas,
                 const TransferLimits& limits);

// Connects to the sender. The stream throws CollectiveError if the sender is lost or the limits are exceeded.
std::shared_ptr<checkpoint::StateStream> receive_states(const std::string& address, std::uint16_t port,
                                                        const std::string& secret, int rank,
                                                        const TransferLimits& limits);

}  // namespace adaptdl::generation
