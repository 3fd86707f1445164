// The channels of a command in a container: its input and outputs, and how it ended.
//
// They are carried by SPDY/3.1, which every API server and kubectl before 1.31 speak, or by a WebSocket where something
// in between does not let SPDY through. Nodes decode a WebSocket's input at half the speed of SPDY's, and take no end
// of it before Kubernetes 1.30; and it is opened by GET, for which fewer users are permitted than for SPDY's POST.
//
// Threading: all in the thread that runs the context; one `receive` and one `send` at a time.
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

#include "kube/client.h"

namespace adaptdl::kube {

enum class Channel : unsigned char { kIn = 0, kOut = 1, kErr = 2, kStatus = 3 };

// The connection ended in the middle of what it carried, or carried what is none of its protocol.
inline const boost::system::error_code kCutOff = boost::asio::error::connection_aborted;
inline const boost::system::error_code kMalformed = make_error_code(boost::system::errc::protocol_error);

class Channels {
 public:
  using Received = std::function<void(boost::system::error_code, Channel, std::string_view)>;
  using Sent = std::function<void(boost::system::error_code)>;

  virtual ~Channels() = default;
  // Passes on the next bytes of any channel, which last as long as the call; or an error: `eof` when all have ended or
  // the server closed, kCutOff and kMalformed where what came cannot be all. Nothing follows an error.
  virtual void receive(Received done) = 0;
  // Sends input. The bytes are to last until `done`.
  virtual void send(std::span<const std::byte> bytes, Sent done) = 0;
  // Keeps the connection in use from now on, and the context busy.
  virtual void keep_alive() = 0;
};

// What a server answers that does not switch to SPDY.
struct Declined {
  int code = 0;
  std::string body;
};

// Runs `context` until they are open. Both throw http::ConnectionError and Error; without SPDY there are none, and
// `declined` says why.
std::unique_ptr<Channels> open_spdy(boost::asio::io_context& context, Client& client, const std::string& path,
                                    const Query& query, Declined& declined);
// Throws ApiError too.
std::unique_ptr<Channels> open_websocket(boost::asio::io_context& context, Client& client, const std::string& path,
                                         const Query& query);

}  // namespace adaptdl::kube
