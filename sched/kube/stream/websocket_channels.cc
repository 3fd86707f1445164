#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/websocket/error.hpp>
#include <utility>
#include <vector>

#include "kube/stream/channels.h"
#include "kube/stream/websocket.h"

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kWebSocketFrame = std::size_t{64} << 10;  // maximum size sent at once
constexpr std::size_t kWebSocketPiece = std::size_t{64} << 10;  // maximum size received at once

class WebSocketChannels : public Channels {
 public:
  WebSocketChannels(asio::io_context& context, Client& client, const std::string& path, const Query& query)
      : socket_(context, client, path, query, "v4.channel.k8s.io"), buffer_(kWebSocketPiece) {}

  void receive(Received done) override {
    socket_.stream().async_read_some(asio::buffer(buffer_),
                                     [this, done = std::move(done)](error_code error, std::size_t size) mutable {
                                       if (error == asio::error::eof && !begins_) error = kCutOff;
                                       if (error == boost::beast::websocket::error::closed) error = asio::error::eof;
                                       if (error) return done(error, {}, {});
                                       std::size_t begin = 0;
                                       if (begins_ && size > 0) channel_ = static_cast<Channel>(buffer_[begin++]);
                                       if (size > 0) begins_ = false;
                                       if (socket_.stream().is_message_done()) begins_ = true;
                                       if (begin == size) return receive(std::move(done));
                                       done({}, channel_, {buffer_.data() + begin, size - begin});
                                     });
  }

  void send(std::span<const std::byte> bytes, Sent done) override {
    const std::size_t size = std::min(bytes.size(), kWebSocketFrame);
    const std::array<asio::const_buffer, 2> frame{asio::buffer(&kMark, 1), asio::buffer(bytes.data(), size)};
    socket_.stream().async_write(
        frame, [this, rest = bytes.subspan(size), done = std::move(done)](error_code error, std::size_t) mutable {
          if (error || rest.empty()) return done(error);
          send(rest, std::move(done));
        });
  }

  void keep_alive() override { socket_.keep_alive(); }

 private:
  static constexpr char kMark = static_cast<char>(Channel::kIn);

  WebSocket socket_;
  std::vector<char> buffer_;
  Channel channel_{};
  bool begins_ = true;  // the next byte begins a message and identifies its channel
};

}  // namespace

std::unique_ptr<Channels> open_websocket(asio::io_context& context, Client& client, const std::string& path,
                                         const Query& query) {
  return std::make_unique<WebSocketChannels>(context, client, path, query);
}

}  // namespace adaptdl::kube
