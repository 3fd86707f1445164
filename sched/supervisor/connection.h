// One connection of a client: requests one after the other, each with its deadline.
//
//   idle      nothing of the next request has come
//   reading   until request_time after its first byte
//   waiting   for an answer that is not there yet; a client that goes away is noticed
//   writing   the answer
//   draining  the last answer was sent: what still comes is thrown away for a moment, since closing a connection with
//             unread bytes would take the answer with it
//
// Threading: the server's thread. Lifetime: owned by the operations that are under way, and by the hub until `closed`.
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

// What connections belong to.
class ConnectionHub {
 public:
  virtual std::variant<Answer, Wait> handle(const HttpRequest& request) = 0;
  // Idle, reading or draining from now on, so that it may be closed to make room; or no longer.
  virtual void idle(Connection& connection, bool is) = 0;
  // Waiting from now on, or no longer.
  virtual void waiting(Connection& connection, bool is) = 0;
  virtual void closed(Connection& connection) = 0;

 protected:
  ~ConnectionHub() = default;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Both must outlive it.
  Connection(boost::asio::ip::tcp::socket socket, ConnectionHub& hub, const SupervisorOptions& options);

  void start();
  // What it waits for. REQUIRES that it is waiting, here and below.
  const Poll& poll() const { return poll_; }
  // The connection ends with this answer if it is the `last`.
  void answer(Answer answer, bool last = false);
  // Does nothing if it is closed.
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
  bool keep_ = true;  // the connection after the answer

  Poll poll_;
  std::uint64_t waits_ = 0;  // how many there were, so that a late timer is told from that of the present one
  bool waiting_ = false;
  bool watching_ = false;         // for the client's end
  std::optional<Answer> answer_;  // to be written once the watch is over
  bool closed_ = false;
};

}  // namespace adaptdl::sched
