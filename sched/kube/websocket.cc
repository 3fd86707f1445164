#include "kube/websocket.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include <cerrno>
#include <cstring>

#include "http/http.h"

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

// An API server waits up to half a minute for a node before it says that it is away.
constexpr std::chrono::seconds kHandshakeTimeout(40);
constexpr std::chrono::seconds kPing(30);
constexpr std::size_t kWriteBuffer = std::size_t{128} << 10;

asio::local::stream_protocol::socket socket_of(asio::io_context& context, const RawConnection& connection) {
  const int fd = ::fcntl(connection.fd(), F_DUPFD_CLOEXEC, 3);
  if (fd < 0) throw Error(fmt::format("cannot duplicate a file descriptor: {}", std::strerror(errno)));
  return {context, asio::local::stream_protocol(), fd};
}

std::string target(const RawConnection& connection, const std::string& path, const Query& query) {
  std::string target = connection.path_prefix() + path;
  char mark = '?';
  for (const auto& [key, value] : query) {
    target += fmt::format("{}{}={}", mark, http::escape(key), http::escape(value));
    mark = '&';
  }
  return target;
}

}  // namespace

WebSocket::WebSocket(asio::io_context& context, Client& client, const std::string& path, const Query& query,
                     const std::string& protocols)
    : connection_(client.connect()), stream_(socket_of(context, *connection_)), ping_(context) {
  using Field = boost::beast::http::field;
  stream_.binary(true);
  stream_.auto_fragment(false);  // a server takes each frame for a message
  stream_.write_buffer_bytes(kWriteBuffer);
  stream_.read_message_max(0);
  // No bound on silence: a program may well take its time, and so may one that does not read.
  stream_.set_option(
      beast::websocket::stream_base::timeout{kHandshakeTimeout, beast::websocket::stream_base::none(), false});
  stream_.set_option(beast::websocket::stream_base::decorator(
      [&, headers = client.authorization_headers()](beast::websocket::request_type& request) {
        request.set(Field::user_agent, "adaptdl/" ADAPTDL_VERSION);
        request.set(Field::sec_websocket_protocol, protocols);
        for (const std::string& header : headers) {
          const std::size_t colon = header.find(':');
          request.insert(header.substr(0, colon),
                         header.substr(std::min(header.find_first_not_of(' ', colon + 1), header.size())));
        }
      }));

  beast::websocket::response_type response;
  beast::error_code result;
  stream_.async_handshake(response, connection_->host(), target(*connection_, path, query),
                          [&](beast::error_code error) {
                            result = error;
                            context.stop();  // a time limit of the handshake may be left over
                          });
  context.restart();
  context.run();
  if (result == beast::websocket::error::upgrade_declined) client.refuse(path, response.result_int(), response.body());
  if (result)
    throw http::ConnectionError(fmt::format("GET {}: no WebSocket could be opened: {}", path,
                                            result == beast::error::timeout ? "no answer in time" : result.message()));
  const auto chosen = response[Field::sec_websocket_protocol];
  protocol_.assign(chosen.data(), chosen.size());
  if (protocol_.empty())
    throw Error(fmt::format("GET {}: the server speaks none of the protocols {}", path, protocols));
}

void WebSocket::keep_alive() {
  ping_.expires_after(kPing);
  ping_.async_wait([this](beast::error_code stopped) {
    if (stopped) return;
    stream_.async_ping({}, [this](beast::error_code failed) {
      if (!failed) keep_alive();
    });
  });
}

}  // namespace adaptdl::kube
