// A WebSocket to an API server, on a raw connection of the client. Used only by exec and port-forward.
//
// Threading: used by one thread at a time, which runs the context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/websocket.hpp>
#include <memory>
#include <string>

#include "kube/client.h"
#include "kube/raw_connection.h"

namespace adaptdl::kube {

class WebSocket {
 public:
  using Stream = boost::beast::websocket::stream<boost::asio::local::stream_protocol::socket, false>;

  // Connects, and runs `context` until the server has agreed to one of the protocols (separated by ", "). Throws
  // ApiError if the server refuses, http::ConnectionError and Error.
  WebSocket(boost::asio::io_context& context, Client& client, const std::string& path, const Query& query,
            const std::string& protocols);

  Stream& stream() { return stream_; }
  const std::string& protocol() const { return protocol_; }
  // Sends pings from now on, because proxies may drop a silent connection; this also keeps the context busy.
  void keep_alive();

 private:
  std::unique_ptr<RawConnection> connection_;
  Stream stream_;
  boost::asio::steady_timer ping_;
  std::string protocol_;
};

}  // namespace adaptdl::kube
