#include "supervisor/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "base/signals_blocked.h"

namespace adaptdl::sched {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptPause{50};  // pause while no descriptors are free
constexpr std::size_t kLeaving = 64;                   // connections beyond the limit while others are being closed

std::size_t bounded_by_descriptors(std::size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  return std::clamp<std::size_t>(limit.rlim_cur / 2, 1, wanted);
}

boost::system::error_code last_error() { return {errno, asio::error::get_system_category()}; }

}  // namespace

Supervisor::Server::Server(const SupervisorOptions& options, SupervisorListener& listener)
    : options_(options),
      max_connections_(bounded_by_descriptors(std::max<std::size_t>(options.max_connections, 1))),
      router_(board_, listener, options_) {
  boost::system::error_code error;
  board_.set_all_jobs_known(options.all_jobs_known);
  const auto address = asio::ip::make_address(options.address, error);
  if (error)
    throw UsageError(fmt::format("invalid address '{}' for the supervisor: expected an IP address", options.address));
  const tcp::endpoint endpoint(address, options.port);
  acceptor_.open(endpoint.protocol(), error);
  // Without this, a replica, or a process that it leaves behind, would keep the port open.
  if (!error && ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC) != 0) error = last_error();
  if (!error) acceptor_.native_non_blocking(true, error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    throw Error(
        fmt::format("the supervisor cannot listen on {}:{}: {}", options.address, options.port, error.message()));
  protocol_ = endpoint.protocol();
  port_ = acceptor_.local_endpoint().port();
  accept();

  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Supervisor::Server::~Server() {
  context_.stop();
  thread_.join();
  while (!connections_.empty()) (*connections_.begin())->close();
}

void Supervisor::Server::run() {
  for (;;) {
    try {
      context_.run();
      return;
    } catch (const std::exception& error) {
      log::warn(fmt::format("the supervisor continues after an error: {}", error.what()));
    }
  }
}

void Supervisor::Server::accept() {
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](boost::system::error_code result) {
    tcp::socket socket(context_);
    if (!result) result = accept_one(socket);
    take(result, std::move(socket));
  });
}

// Asio's accept() does not set FD_CLOEXEC atomically, so a process that is started at that moment would inherit the
// connection.
boost::system::error_code Supervisor::Server::accept_one(tcp::socket& socket) {
  const int fd = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return last_error();
  boost::system::error_code result;
  socket.assign(protocol_, fd, result);
  if (result) ::close(fd);
  return result;
}

void Supervisor::Server::take(boost::beast::error_code result, tcp::socket socket) {
  if (result == asio::error::operation_aborted) return;
  // The client disconnected before its connection was accepted.
  if (result == asio::error::try_again || result == asio::error::connection_aborted ||
      result == asio::error::interrupted)
    return accept();
  if (result) {
    make_room();
    retry_.expires_after(kAcceptPause);
    retry_.async_wait([this](boost::system::error_code) { accept(); });
    return;
  }
  if (connections_.size() >= max_connections_) make_room();
  if (connections_.size() < max_connections_ + kLeaving)
    (*connections_.insert(std::make_shared<Connection>(std::move(socket), *this, options_)).first)->start();
  accept();
}

void Supervisor::Server::make_room() {
  if (Connection* const idle_one = idle_.oldest()) {
    idle_one->close();
  } else if (Connection* const waiting_one = waiting_.oldest()) {
    waiting_one->answer(ask_again(), true);
  }
}

void Supervisor::Server::wake(const std::string& job_id) {
  asio::post(context_, [this, job_id] {
    const auto found = waiting_for_.find(job_id);
    if (found == waiting_for_.end()) return;
    // An answer removes its connection from the list, and the last answer removes the list, so this loop uses a copy.
    const std::vector<Connection*> all(found->second.all().begin(), found->second.all().end());
    for (Connection* connection : all)
      if (auto answer = board_.answer(connection->poll())) connection->answer(std::move(*answer));
  });
}

void Supervisor::Server::idle(Connection& connection, bool is) {
  is ? idle_.add(connection) : idle_.remove(connection);
}

void Supervisor::Server::waiting(Connection& connection, bool is) {
  const std::string& job_id = connection.poll().job_id;
  if (is) {
    waiting_.add(connection);
    waiting_for_[job_id].add(connection);
    return;
  }
  waiting_.remove(connection);
  const auto found = waiting_for_.find(job_id);
  if (found == waiting_for_.end()) return;
  found->second.remove(connection);
  if (found->second.oldest() == nullptr) waiting_for_.erase(found);
}

void Supervisor::Server::closed(Connection& connection) { connections_.erase(connection.shared_from_this()); }

}  // namespace adaptdl::sched
