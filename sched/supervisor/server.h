// Owns a supervisor's sockets and thread.
//
// Threading: the public methods may be called from any thread; the private methods run on the server's own thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <set>
#include <thread>

#include "supervisor/age_list.h"
#include "supervisor/connection.h"

namespace adaptdl::sched {

class Supervisor::Server final : public ConnectionHub {
 public:
  Server(const SupervisorOptions& options, SupervisorListener& listener);
  ~Server();

  const SupervisorOptions& options() const noexcept { return options_; }
  std::uint16_t port() const noexcept { return port_; }
  JobBoard& board() noexcept { return board_; }
  // Answers the connections that are waiting for this job and can be answered now.
  void wake(const std::string& job_id);

 private:
  void accept();
  boost::system::error_code accept_one(boost::asio::ip::tcp::socket& socket);
  void take(boost::beast::error_code result, boost::asio::ip::tcp::socket socket);
  void make_room();
  void run();

  std::variant<Answer, Wait> handle(const HttpRequest& request) override { return router_.handle(request); }
  void idle(Connection& connection, bool is) override;
  void waiting(Connection& connection, bool is) override;
  void closed(Connection& connection) override;

  const SupervisorOptions options_;
  const std::size_t max_connections_;
  JobBoard board_;
  Router router_;
  boost::asio::io_context context_{1};
  boost::asio::ip::tcp::acceptor acceptor_{context_};
  boost::asio::steady_timer retry_{context_};
  boost::asio::ip::tcp protocol_ = boost::asio::ip::tcp::v4();
  std::uint16_t port_ = 0;
  std::set<std::shared_ptr<Connection>> connections_;
  AgeList<Connection> idle_, waiting_;
  std::map<std::string, AgeList<Connection>, std::less<>> waiting_for_;  // by job
  std::thread thread_;
};

}  // namespace adaptdl::sched
