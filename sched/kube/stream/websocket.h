// A WebSocket to an API server, on one of the client's raw connections. Used only by exec and port-forward.
//
// Threading: a WebSocket must be used in the thread that runs the context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/websocket.hpp>
#include <memory>
#include <string>

#include "kube/api/client.h"
#include "kube/api/raw_connection.h"

namespace adaptdl::kube {

class WebSocket {
 public:
  using Stream = boost::beast::websocket::stream<boost::asio::local::stream_protocol::socket, false>;

  // Connects, and runs `context` until the server has accepted one of the protocols (separated by ", "). Throws
  // http::ConnectionError, Error and, if the server refuses, ApiError.
  WebSocket(boost::asio::io_context& context, Client& client, const std::string& path, const Query& query,
            const std::string& protocols);

  Stream& stream() { return stream_; }
  const std::string& protocol() const { return protocol_; }
  // Starts to send pings, because proxies may drop a silent connection. The pings also keep the context running.
  void keep_alive();

 private:
  std::unique_ptr<RawConnection> connection_;
  Stream stream_;
  boost::asio::steady_timer ping_;
  std::string protocol_;
};

}  // namespace adaptdl::kube
