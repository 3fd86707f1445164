// Relays one local connection to a port of a pod, over its own WebSocket.
//
// Threading: `run` blocks its caller until the connection has ended; `stop` may be called from any other thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "kube/stream/forward_target.h"
#include "kube/stream/websocket.h"

namespace adaptdl::kube {

class Relay {
 public:
  Relay() : local_(context_) {}
  // The socket for accepting the local connection.
  boost::asio::ip::tcp::socket& local() { return local_; }
  // Opens a WebSocket to the pod. Throws the same errors as the constructor of WebSocket.
  void open(Client& client, const std::string& name_space, const ForwardTarget& target);
  // Passes bytes in both directions until the connection ends. Returns why the pod's port could not be reached, or "".
  std::string run();
  void stop() { context_.stop(); }

 private:
  void read_remote();
  void take(std::size_t size);
  void read_local();
  void local_ended();
  void end();

  boost::asio::io_context context_{1};
  boost::asio::ip::tcp::socket local_;
  std::unique_ptr<WebSocket> remote_;
  std::unique_ptr<boost::asio::steady_timer> silence_;  // started when the local client ends its output
  std::vector<char> from_remote_, from_local_;
  std::size_t headers_[2] = {0, 0};  // number of bytes of each channel's header received so far
  bool message_begins_ = true;
  unsigned char channel_ = 0;
  std::string error_;
};

}  // namespace adaptdl::kube
