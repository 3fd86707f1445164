#include "kube/stream/websocket.h"

#include <fmt/format.h>

#include "http/http.h"
#include "kube/stream/upgrade.h"

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr std::size_t kWriteBuffer = std::size_t{128} << 10;

}  // namespace

WebSocket::WebSocket(asio::io_context& context, Client& client, const std::string& path, const Query& query,
                     const std::string& protocols)
    : connection_(client.connect()), stream_(socket_of(context, *connection_)), ping_(context) {
  using Field = boost::beast::http::field;
  stream_.binary(true);
  stream_.auto_fragment(false);  // servers treat each frame as a message
  stream_.write_buffer_bytes(kWriteBuffer);
  stream_.read_message_max(0);
  // There is no idle timeout: programs may write or read nothing for a long time.
  stream_.set_option(
      beast::websocket::stream_base::timeout{kHandshakeTimeout, beast::websocket::stream_base::none(), false});
  stream_.set_option(beast::websocket::stream_base::decorator(
      [&, headers = client.authorization_headers()](beast::websocket::request_type& request) {
        request.set(Field::user_agent, "adaptdl/" ADAPTDL_VERSION);
        request.set(Field::sec_websocket_protocol, protocols);
        for (const std::string& header : headers) {
          const auto [name, value] = split_header(header);
          request.insert(name, value);
        }
      }));

  beast::websocket::response_type response;
  beast::error_code result;
  stream_.async_handshake(response, connection_->host(), request_target(*connection_, path, query),
                          [&](beast::error_code error) {
                            result = error;
                            context.stop();  // a timer of the handshake may still be pending
                          });
  context.restart();
  context.run();
  if (result == beast::websocket::error::upgrade_declined) client.refuse(path, response.result_int(), response.body());
  if (result)
    throw http::ConnectionError(fmt::format("GET {}: cannot open a WebSocket: {}", path,
                                            result == beast::error::timeout ? "timed out" : result.message()));
  const auto chosen = response[Field::sec_websocket_protocol];
  protocol_.assign(chosen.data(), chosen.size());
  if (protocol_.empty())
    throw Error(fmt::format("GET {}: the server supports none of the protocols {}", path, protocols));
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
