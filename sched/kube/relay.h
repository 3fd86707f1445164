// One local connection that is passed on to a port of a pod, over a WebSocket of its own.
//
// Threading: `run` blocks the thread that calls it until the connection is over; `stop` may be called from any other.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "kube/forward_target.h"
#include "kube/websocket.h"

namespace adaptdl::kube {

class Relay {
 public:
  Relay() : local_(context_) {}
  // Where to accept the local connection.
  boost::asio::ip::tcp::socket& local() { return local_; }
  // Opens the way to the pod. Throws what WebSocket does.
  void open(Client& client, const std::string& name_space, const ForwardTarget& target);
  // Passes bytes on, both ways, until both have ended. Returns why the pod's port could not be reached, or nothing.
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
  std::unique_ptr<boost::asio::steady_timer> silence_;  // after the local end has said all it wants
  std::vector<char> from_remote_, from_local_;
  std::size_t headers_[2] = {0, 0};  // bytes seen of what comes first on each channel
  bool message_begins_ = true;
  unsigned char channel_ = 0;
  std::string error_;
};

}  // namespace adaptdl::kube
