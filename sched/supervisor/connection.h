// A client's connection. It carries one request after another, each with its own deadline.
//
//   idle      no part of the next request has been received
//   reading   the rest of a request is being received, within request_time
//   waiting   there is no answer yet; the connection is closed if the client disconnects
//   writing   the answer is being sent
//   draining  the last answer was sent; further input is discarded for a moment, because closing a connection with
//             unread bytes would also discard the answer
//
// Threading: only the server's thread uses it. Lifetime: the operations in progress own it, and so does the hub until
// closed().
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <memory>
#include <optional>

#include "supervisor/router.h"

namespace adaptdl::sched {

class Connection;

// The owner of the connections, which answers their requests.
class ConnectionHub {
 public:
  virtual std::variant<Answer, Wait> handle(const HttpRequest& request) = 0;
  // Reports whether the connection is idle, reading or draining (`is`), which means that it may be closed to make room
  // for a new connection.
  virtual void idle(Connection& connection, bool is) = 0;
  // Reports whether the connection is waiting for an answer (`is`).
  virtual void waiting(Connection& connection, bool is) = 0;
  virtual void closed(Connection& connection) = 0;

 protected:
  ~ConnectionHub() = default;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `hub` and `options` must outlive the connection.
  Connection(boost::asio::ip::tcp::socket socket, ConnectionHub& hub, const SupervisorOptions& options);

  void start();
  // Returns the poll whose answer the connection is waiting for; if it is not waiting, the last such poll.
  const Poll& poll() const { return poll_; }
  // Sends the answer for which the connection is waiting and, if `last`, closes the connection afterwards. REQUIRES
  // that the connection is waiting.
  void answer(Answer answer, bool last = false);
  // Does nothing if the connection is already closed.
  void close();

 private:
  using Result = boost::beast::error_code;

  void read_first();
  void read_rest();
  void take_request(Result result);
  ConnectionEnds ends();
  void wait(Wait wait);
  void watch_client();
  void write(Answer answer);
  void drain();
  template <typename Handler>
  auto then(Handler handler);

  ConnectionHub& hub_;
  const SupervisorOptions& options_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<boost::beast::http::response<boost::beast::http::string_body>> response_;
  std::array<char, 4096> discarded_{};
  bool keep_ = true;  // whether to keep the connection after the answer

  Poll poll_;
  std::uint64_t waits_ = 0;  // number of waits so far; identifies the current wait's timer
  bool waiting_ = false;
  bool watching_ = false;         // whether the connection is watching for the client to disconnect
  std::optional<Answer> answer_;  // written once the watch has ended
  bool closed_ = false;
};

}  // namespace adaptdl::sched
