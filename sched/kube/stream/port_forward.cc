#include "kube/stream/port_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "http/http.h"
#include "kube/stream/forward_target.h"
#include "kube/stream/relay.h"

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Listens on every address of a host name, on the same port.
std::vector<tcp::acceptor> listen(asio::io_context& context, const std::string& address, std::uint16_t port) {
  error_code error;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(address, std::to_string(port), tcp::resolver::passive, error);
  if (error) throw UsageError(fmt::format("'{}' is not an address of this machine: {}", address, error.message()));
  std::vector<tcp::acceptor> acceptors;
  for (const auto& entry : found) {
    tcp::endpoint endpoint = entry.endpoint();
    if (!acceptors.empty()) endpoint.port(acceptors.front().local_endpoint().port());
    tcp::acceptor acceptor(context);
    error_code result;
    acceptor.open(endpoint.protocol(), result);
    if (!result) acceptor.set_option(tcp::acceptor::reuse_address(true), result);
    if (!result && endpoint.protocol() == tcp::v6()) acceptor.set_option(asio::ip::v6_only(true), result);
    if (!result) acceptor.bind(endpoint, result);
    if (!result) acceptor.listen(asio::socket_base::max_listen_connections, result);
    if (!result)
      acceptors.push_back(std::move(acceptor));
    else if (!error)
      error = result;
  }
  if (!acceptors.empty()) return acceptors;
  if (error == asio::error::address_in_use)
    throw UsageError(fmt::format("port {} on {} is in use; choose another, or 0 for a free one", port, address));
  throw UsageError(fmt::format("cannot listen on {} port {}: {}", address, port, error.message()));
}

}  // namespace

struct PortForward::Impl {
  struct Connection {
    Relay relay;
    std::atomic<bool> over = false;
    std::jthread thread;
  };

  Impl(Client& with, const ForwardOptions& how)
      : client(with), options(how), acceptors(listen(context, options.address, options.local_port)) {}

  ForwardTarget current() {
    const std::scoped_lock lock(mutex);
    if (!target) target = find_target(client, options);
    return *target;
  }
  void forget() {
    const std::scoped_lock lock(mutex);
    target.reset();
  }

  // Runs in the connection's thread.
  void open(Relay& relay) {
    try {
      relay.open(client, options.name_space, current());
    } catch (const Error&) {
      // The pod may have been deleted, but a service may have other pods.
      if (options.service.empty()) throw;
      forget();
      relay.open(client, options.name_space, current());
    }
  }
  void serve(Connection& connection) {
    try {
      open(connection.relay);
      const std::string failed = connection.relay.run();
      if (!failed.empty()) {
        forget();
        report(failed);
      }
    } catch (const std::exception& error) {
      if (!stopping) report(error.what());
    }
    connection.over = true;
  }
  void report(const std::string& line) {
    const std::scoped_lock lock(mutex);
    if (notice && *notice) (*notice)(line);
  }

  // Runs in the thread that called `serve`.
  void accept(tcp::acceptor& acceptor) {
    connections.remove_if([](const Connection& each) { return each.over.load(); });
    auto& fresh = waiting.emplace_back();
    const auto place = std::prev(waiting.end());
    acceptor.async_accept(fresh.relay.local(), [this, place, &acceptor](error_code error) {
      if (stopping) return;
      if (error) {
        waiting.erase(place);
        return retry(acceptor);
      }
      connections.splice(connections.end(), waiting, place);
      place->thread = std::jthread([this, place] { serve(*place); });
      accept(acceptor);
    });
  }
  // Tries again after file descriptors have run out; some become free when connections end.
  void retry(tcp::acceptor& acceptor) {
    auto timer = std::make_shared<asio::steady_timer>(context, std::chrono::milliseconds(200));
    timer->async_wait([this, timer, &acceptor](error_code) {
      if (!stopping) accept(acceptor);
    });
  }

  Client& client;
  const ForwardOptions options;
  std::mutex mutex;
  std::optional<ForwardTarget> target;
  const std::function<void(const std::string&)>* notice = nullptr;
  std::atomic<bool> stopping = false;
  asio::io_context context{1};
  std::list<Connection> waiting, connections;
  std::vector<tcp::acceptor> acceptors;
};

PortForward::PortForward(Client& client, const ForwardOptions& options)
    : impl_(std::make_unique<Impl>(client, options)) {}
PortForward::~PortForward() = default;

void PortForward::find() { impl_->current(); }

std::uint16_t PortForward::local_port() const { return impl_->acceptors.front().local_endpoint().port(); }

void PortForward::serve(std::stop_token stop, const std::function<void(const std::string&)>& notice) {
  impl_->notice = &notice;
  impl_->stopping = false;
  impl_->context.restart();
  for (tcp::acceptor& acceptor : impl_->acceptors) impl_->accept(acceptor);
  {
    const std::stop_callback end(stop, [this] {
      impl_->stopping = true;
      impl_->context.stop();
    });
    impl_->context.run();
  }
  for (tcp::acceptor& acceptor : impl_->acceptors) acceptor.close();
  for (Impl::Connection& connection : impl_->connections) {
    // Call stop() repeatedly, because a connection that is being opened can be stopped only once it is running.
    for (; !connection.over; std::this_thread::sleep_for(std::chrono::milliseconds(10))) connection.relay.stop();
  }
  impl_->connections.clear();
  impl_->notice = nullptr;
}

}  // namespace adaptdl::kube
