#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <utility>
#include <vector>

#include "http/http.h"
#include "kube/stream/channels.h"
#include "kube/stream/spdy_frames.h"
#include "kube/stream/upgrade.h"

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

constexpr const char* kProtocol = "v4.channel.k8s.io";
constexpr std::size_t kSpdyFrame = std::size_t{1} << 20;  // maximum size of a data frame that is sent
constexpr std::size_t kMaxHeadSize = std::size_t{64} << 10;
constexpr std::size_t kMaxAnswers = 1000;  // limit for queued answers to the server's pings

struct Stream {
  Channel channel;
  const char* type;
};

class SpdyChannels : public Channels {
 public:
  SpdyChannels(asio::io_context& context, std::unique_ptr<RawConnection> connection)
      : connection_(std::move(connection)), socket_(socket_of(context, *connection_)), ping_(context) {}

  // If the server responds with a status other than 101, stores its response in `declined` and returns false.
  bool upgrade(asio::io_context& context, Client& client, const std::string& path, const Query& query,
               Declined& declined) {
    beast::http::request<beast::http::empty_body> request{beast::http::verb::post,
                                                          request_target(*connection_, path, query), 11};
    request.set(beast::http::field::host, connection_->host());
    request.set(beast::http::field::user_agent, "adaptdl/" ADAPTDL_VERSION);
    request.set(beast::http::field::connection, "Upgrade");
    request.set(beast::http::field::upgrade, "SPDY/3.1");
    request.set("X-Stream-Protocol-Version", kProtocol);
    request.set(beast::http::field::content_length, "0");
    for (const std::string& header : client.authorization_headers()) {
      const auto [name, value] = split_header(header);
      request.insert(name, value);
    }
    beast::http::response_parser<beast::http::string_body> answer;
    answer.body_limit(kMaxHeadSize);
    beast::flat_buffer buffer(kMaxHeadSize);
    error_code result = asio::error::timed_out;
    beast::http::async_write(socket_, request, [&](error_code error, std::size_t) {
      if (error) {
        result = error;
        return;
      }
      beast::http::async_read(socket_, buffer, answer, [&](error_code failed, std::size_t) { result = failed; });
    });
    context.restart();
    context.run_for(kHandshakeTimeout);
    if (result == asio::error::timed_out || (result && !answer.is_header_done())) {
      throw http::ConnectionError(fmt::format("POST {}: cannot upgrade the connection: {}", path,
                                              result == asio::error::timed_out ? "timed out" : result.message()));
    }
    if (answer.get().result() != beast::http::status::switching_protocols) {
      declined = {static_cast<int>(answer.get().result_int()), answer.get().body()};
      return false;
    }
    frames_.received(
        asio::buffer_copy(asio::mutable_buffer(frames_.room().data(), frames_.room().size()), buffer.data()));
    return true;
  }

  // Requests the streams that the query enables, in the same order as other clients.
  void open_streams(const Query& query) {
    const auto wants = [&query](const std::string& name) {
      return std::ranges::find(query, std::pair<std::string, std::string>(name, "true")) != query.end();
    };
    add({Channel::kStatus, "error"});
    if (wants("stdin")) add({Channel::kIn, "stdin"});
    if (wants("stdout")) add({Channel::kOut, "stdout"});
    if (wants("stderr")) add({Channel::kErr, "stderr"});
  }

  void receive(Received done) override {
    using Kind = spdy::FrameReader::Event::Kind;
    while (!open_.empty()) {
      const spdy::FrameReader::Event event = frames_.next();
      if (event.kind == Kind::kMore) return receive_more(std::move(done));
      if (event.kind == Kind::kMalformed) return done(kMalformed, {}, {});
      if (event.kind == Kind::kPing) {
        if (!answer_ping(event.id)) return done(kMalformed, {}, {});
        continue;
      }
      if (event.id % 2 == 0 || event.id / 2 >= streams_.size()) return done(kMalformed, {}, {});
      const Channel channel = streams_[event.id / 2].channel;
      const bool ended = std::ranges::find(open_, channel) == open_.end();
      if (event.kind == Kind::kReset) {
        if (!ended) return done(asio::error::connection_reset, {}, {});
        continue;  // the input was reset: the command no longer reads it
      }
      if (event.ends) std::erase(open_, channel);
      if (event.data.empty() || channel == Channel::kIn) continue;
      return ended ? done(kMalformed, {}, {}) : done({}, channel, event.data);
    }
    done(asio::error::eof, {}, {});
  }

  void send(std::span<const std::byte> bytes, Sent done) override {
    const std::size_t size = std::min(bytes.size(), kSpdyFrame);
    write({spdy::data_head(id_of(Channel::kIn), size), bytes.first(size),
           [this, rest = bytes.subspan(size), done = std::move(done)](error_code error) mutable {
             if (error || rest.empty()) return done(error);
             send(rest, std::move(done));
           }});
  }

  void keep_alive() override {
    ping_.expires_after(kPing);
    ping_.async_wait([this](error_code stopped) {
      if (stopped) return;
      write({spdy::ping(pings_ += 2), {}, [](error_code) {}});
      keep_alive();
    });
  }

 private:
  struct Frame {
    std::string head;
    std::span<const std::byte> data;
    Sent done;
  };

  std::uint32_t id_of(Channel channel) const {
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if (streams_[i].channel == channel) return static_cast<std::uint32_t>(2 * i + 1);
    return 0;
  }

  void add(Stream stream) {
    streams_.push_back(stream);
    if (stream.channel != Channel::kIn) open_.push_back(stream.channel);
    write({spdy::open_stream(id_of(stream.channel), stream.type, streams_.size() == 1), {}, [](error_code) {}});
  }

  void receive_more(Received done) {
    const std::span<char> room = frames_.room();
    socket_.async_read_some(asio::buffer(room.data(), room.size()),
                            [this, done = std::move(done)](error_code error, std::size_t size) mutable {
                              if (error) return done(frames_.in_frame() ? kCutOff : error, {}, {});
                              frames_.received(size);
                              receive(std::move(done));
                            });
  }

  // Answers the server's pings, which have even ids; odd ids are answers to this client's pings. Returns false if the
  // server sends pings without reading the answers.
  bool answer_ping(std::uint32_t id) {
    if (id % 2 != 0) return true;
    if (++answers_ > kMaxAnswers) return false;
    write({spdy::ping(id), {}, [this](error_code) { --answers_; }});
    return true;
  }

  void write(Frame frame) {
    queue_.push_back(std::move(frame));
    if (queue_.size() == 1) write_next();
  }

  void write_next() {
    const Frame& frame = queue_.front();
    const std::array<asio::const_buffer, 2> parts{asio::buffer(frame.head),
                                                  asio::buffer(frame.data.data(), frame.data.size())};
    asio::async_write(socket_, parts, [this](error_code error, std::size_t) {
      const Sent done = std::move(queue_.front().done);
      queue_.pop_front();
      if (!queue_.empty()) write_next();
      done(error);
    });
  }

  std::unique_ptr<RawConnection> connection_;
  asio::local::stream_protocol::socket socket_;
  asio::steady_timer ping_;
  std::uint32_t pings_ = 1;
  std::vector<Stream> streams_;  // in the order of their ids: 1, 3, 5, ...
  std::vector<Channel> open_;    // channels that the server still writes to
  std::deque<Frame> queue_;
  std::size_t answers_ = 0;  // number of queued answers to pings
  spdy::FrameReader frames_;
};

}  // namespace

std::unique_ptr<Channels> open_spdy(asio::io_context& context, Client& client, const std::string& path,
                                    const Query& query, Declined& declined) {
  auto channels = std::make_unique<SpdyChannels>(context, client.connect());
  if (!channels->upgrade(context, client, path, query, declined)) return nullptr;
  channels->open_streams(query);
  return channels;
}

}  // namespace adaptdl::kube
