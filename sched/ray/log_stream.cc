#include "ray/log_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "adaptdl/error.h"
#include "http/http.h"
#include "http/tunnel.h"
#include "ray/job_server.h"

namespace adaptdl::ray {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Clock = std::chrono::steady_clock;

constexpr auto kMaxOutage = std::chrono::seconds(30);
constexpr auto kReconnectAfter = std::chrono::milliseconds(300);

// Returns the host and port of a URL, and the path after them.
std::pair<std::string, std::string> split_url(const std::string& url) {
  const std::size_t begin = url.find("://") + 3, slash = url.find('/', begin);
  std::string host = url.substr(begin, slash == std::string::npos ? std::string::npos : slash - begin);
  host.erase(0, host.rfind('@') + 1);
  return {std::move(host), slash == std::string::npos ? "" : url.substr(slash)};
}

// Returns why the server has declined to send the output. For an unknown job, Ray 2.60 answers with the status 200.
std::string why_declined(const Access& access, const std::string& id, unsigned status) {
  const std::string server = http::without_user(access.url);
  if (status == 401 || status == 403)
    return fmt::format("the Ray job server '{}' requires a valid token; set RAY_AUTH_TOKEN", server);
  if (JobServer(access).find(id))
    return fmt::format("cannot read the output of job '{}': the Ray job server '{}' answered {}", id, server, status);
  return fmt::format(
      "job '{}' does not exist in the Ray cluster '{}': it was deleted, or the cluster was restarted; to continue, "
      "submit it again",
      id, server);
}

class Connection {
 public:
  Connection(const Access& access, const std::string& id) : tunnel_(request_for(access)), stream_(context_) {
    const int fd = ::fcntl(tunnel_.fd(), F_DUPFD_CLOEXEC, 3);
    if (fd < 0) throw Error(fmt::format("cannot duplicate a file descriptor: {}", std::strerror(errno)));
    stream_.next_layer().assign(asio::local::stream_protocol(), fd);
    stream_.read_message_max(0);
    stream_.set_option(beast::websocket::stream_base::decorator([&access](beast::websocket::request_type& request) {
      for (const std::string& header : access.headers) {
        const std::size_t colon = header.find(": ");
        request.insert(header.substr(0, colon), header.substr(colon + 2));
      }
    }));
    const auto [host, prefix] = split_url(access.url);
    beast::websocket::response_type response;
    beast::error_code error;
    stream_.handshake(response, host, prefix + "/api/jobs/" + http::escape(id) + "/logs/tail", error);
    if (error == beast::websocket::error::upgrade_declined)
      throw Error(why_declined(access, id, response.result_int()));
    if (error) throw http::ConnectionError(error.message());
  }

  // Returns false once the server has closed the connection normally. Throws ConnectionError if the connection breaks.
  bool read(std::string& piece) {
    beast::flat_buffer buffer;
    beast::error_code error;
    stream_.read(buffer, error);
    if (error == beast::websocket::error::closed) {
      if (stream_.reason().code == beast::websocket::close_code::normal) return false;
      throw http::ConnectionError("the server closed the connection");
    }
    if (error) throw http::ConnectionError(error.message());
    piece.assign(static_cast<const char*>(buffer.data().data()), buffer.size());
    return true;
  }

  // May be called from another thread. Ends a pending read.
  void interrupt() { ::shutdown(tunnel_.fd(), SHUT_RDWR); }

 private:
  static http::Request request_for(const Access& access) {
    http::Request request;
    request.url = access.url;
    return request;
  }

  http::Tunnel tunnel_;
  asio::io_context context_;
  beast::websocket::stream<asio::local::stream_protocol::socket, false> stream_;
};

}  // namespace

void follow_logs(const Access& access, const std::string& id, const std::stop_token& stop,
                 const std::function<bool(std::string_view)>& sink) {
  std::size_t passed = 0;  // bytes of the output that `sink` has received
  for (auto reached = Clock::now(); !stop.stop_requested();) {
    try {
      Connection connection(access, id);
      const std::stop_callback interrupt(stop, [&connection] { connection.interrupt(); });
      std::size_t received = 0;  // over this connection, on which the output is sent from its beginning
      for (std::string piece; connection.read(piece); reached = Clock::now()) {
        const std::size_t known = std::min(piece.size(), passed - std::min(passed, received));
        received += piece.size();
        if (known == piece.size()) continue;
        if (!sink(std::string_view(piece).substr(known))) return;
        passed += piece.size() - known;
      }
      return;
    } catch (const http::ConnectionError& error) {
      if (stop.stop_requested()) return;
      if (Clock::now() - reached > kMaxOutage) {
        throw Error(
            fmt::format("cannot reach the Ray job server '{}': {}", http::without_user(access.url), error.reason()));
      }
    }
    std::this_thread::sleep_for(kReconnectAfter);
  }
}

}  // namespace adaptdl::ray
