// What the protocols have in common that begin as an HTTP request to an API server.
//
// Threading: plain functions.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <string>

#include "kube/client.h"
#include "kube/raw_connection.h"

namespace adaptdl::kube {

// An API server waits up to half a minute for a node before it says that it is away.
inline constexpr std::chrono::seconds kHandshakeTimeout(40);
// What lies between may forget a connection that is silent for long.
inline constexpr std::chrono::seconds kPing(30);

// Another descriptor of the connection. Throws Error.
boost::asio::local::stream_protocol::socket socket_of(boost::asio::io_context& context,
                                                      const RawConnection& connection);

// What the request line asks for.
std::string request_target(const RawConnection& connection, const std::string& path, const Query& query);

// "Name: value" as both.
std::pair<std::string, std::string> split_header(const std::string& header);

}  // namespace adaptdl::kube
