// Shared parts of the protocols that begin with an HTTP request to an API server.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <string>

#include "kube/api/client.h"
#include "kube/api/raw_connection.h"

namespace adaptdl::kube {

// An API server waits up to 30 s for a node before it reports the node as unavailable.
inline constexpr std::chrono::seconds kHandshakeTimeout(40);
// Proxies and firewalls may drop a connection that is silent for a long time.
inline constexpr std::chrono::seconds kPing(30);

// Returns a socket on a duplicate of the connection's descriptor. Throws Error.
boost::asio::local::stream_protocol::socket socket_of(boost::asio::io_context& context,
                                                      const RawConnection& connection);

// Returns the target of the request line.
std::string request_target(const RawConnection& connection, const std::string& path, const Query& query);

// Splits "Name: value" into name and value.
std::pair<std::string, std::string> split_header(const std::string& header);

}  // namespace adaptdl::kube
