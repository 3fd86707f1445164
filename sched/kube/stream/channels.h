// The channels of a command in a container: its input, its outputs, and a status that reports how it ended.
//
// The channels use SPDY/3.1, which every API server supports (and which kubectl used before 1.31), or a WebSocket if a
// proxy in between does not support SPDY. SPDY is preferred: nodes decode input from a WebSocket at half the speed, and
// before Kubernetes 1.30 they do not recognize the end of that input. Also, opening a WebSocket is a GET request, which
// fewer users are permitted to send than the POST request that opens a SPDY connection.
//
// Threading: every member must be called in the thread that runs the context, with at most one `receive` and one `send`
// pending.
#pragma once

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kube/api/client.h"

namespace adaptdl::kube {

enum class Channel : unsigned char { kIn = 0, kOut = 1, kErr = 2, kStatus = 3 };

// The connection ended in the middle of a message (kCutOff), or carried data that violates its protocol (kMalformed).
inline const boost::system::error_code kCutOff = boost::asio::error::connection_aborted;
inline const boost::system::error_code kMalformed = make_error_code(boost::system::errc::protocol_error);

class Channels {
 public:
  using Received = std::function<void(boost::system::error_code, Channel, std::string_view)>;
  using Sent = std::function<void(boost::system::error_code)>;

  virtual ~Channels() = default;
  // Passes the next bytes from any channel to `done`; the bytes are valid only during that call. At the end or on
  // failure, passes an error: `eof` if all channels have ended or the server has closed the connection, and otherwise
  // kCutOff, kMalformed or the connection's error. Do not call `receive` again after an error.
  virtual void receive(Received done) = 0;
  // Sends input. The bytes must stay valid until `done` is called.
  virtual void send(std::span<const std::byte> bytes, Sent done) = 0;
  // Starts to send pings, so that the connection is not closed as idle. The pings also keep the context running.
  virtual void keep_alive() = 0;
};

// The response of a server that does not switch to SPDY.
struct Declined {
  int code = 0;
  std::string body;
};

// Both functions run `context` until the channels are open, and throw http::ConnectionError and Error. If the server
// does not switch to SPDY, `open_spdy` returns null and sets `declined` to the server's response.
std::unique_ptr<Channels> open_spdy(boost::asio::io_context& context, Client& client, const std::string& path,
                                    const Query& query, Declined& declined);
// Also throws ApiError.
std::unique_ptr<Channels> open_websocket(boost::asio::io_context& context, Client& client, const std::string& path,
                                         const Query& query);

}  // namespace adaptdl::kube
