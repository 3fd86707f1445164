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
#include "kube/channels.h"
#include "kube/upgrade.h"

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

constexpr const char* kProtocol = "v4.channel.k8s.io";
constexpr std::size_t kFrame = std::size_t{1} << 20;    // of data sent at once
constexpr std::size_t kBuffer = std::size_t{128} << 10;  // received at once
constexpr std::size_t kMostControl = std::size_t{64} << 10;
constexpr std::size_t kHead = 8;
constexpr unsigned char kFin = 1;

// SPDY/3.1, sections 2.2.2 and 2.6.
enum Control : unsigned { kSynStream = 1, kReset = 3, kPingFrame = 6 };

void put(std::string& to, std::uint32_t number, int bytes = 4) {
  while (bytes-- > 0) to += static_cast<char>(number >> 8 * bytes);
}

std::uint32_t number_at(const char* from, int bytes = 4) {
  std::uint32_t number = 0;
  for (int i = 0; i < bytes; ++i) number = number << 8 | static_cast<unsigned char>(from[i]);
  return number;
}

std::string control_frame(Control type, const std::string& payload) {
  std::string frame;
  put(frame, 0x8003, 2);
  put(frame, type, 2);
  put(frame, static_cast<std::uint32_t>(payload.size()));  // with no flags before the length's three bytes
  return frame + payload;
}

// One header, as a part of the connection's one zlib stream: it stays uncompressed, and so needs no dictionary.
std::string header_block(const std::string& name, const std::string& value, bool first) {
  std::string header;
  put(header, 1);
  put(header, static_cast<std::uint32_t>(name.size()));
  header += name;
  put(header, static_cast<std::uint32_t>(value.size()));
  header += value;
  std::string block = first ? "\x78\x01" : "";
  const auto stored = [&block](const std::string& bytes) {  // RFC 1951, 3.2.4
    const auto size = static_cast<std::uint16_t>(bytes.size());
    for (const unsigned byte : {0u, size & 0xFFu, unsigned{size} >> 8, ~size & 0xFFu, ~size >> 8 & 0xFFu})
      block += static_cast<char>(byte);
    block += bytes;
  };
  stored(header);
  stored("");  // has the other end take what it got
  return block;
}

struct Stream {
  Channel channel;
  const char* type;
};

class SpdyChannels : public Channels {
 public:
  SpdyChannels(asio::io_context& context, std::unique_ptr<RawConnection> connection)
      : connection_(std::move(connection)), socket_(socket_of(context, *connection_)), ping_(context) {}

  // False: the answer is no 101.
  bool upgrade(asio::io_context& context, Client& client, const std::string& path, const Query& query) {
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
    beast::http::response_parser<beast::http::empty_body> answer;
    beast::flat_buffer buffer(kBuffer);
    error_code result = asio::error::timed_out;
    beast::http::async_write(socket_, request, [&](error_code error, std::size_t) {
      if (error) {
        result = error;
        return;
      }
      beast::http::async_read_header(socket_, buffer, answer, [&](error_code failed, std::size_t) { result = failed; });
    });
    context.restart();
    context.run_for(kHandshakeTimeout);
    if (result) {
      throw http::ConnectionError(fmt::format("POST {}: no answer to the request to upgrade: {}", path,
                                              result == asio::error::timed_out ? "none in time" : result.message()));
    }
    if (answer.get().result() != beast::http::status::switching_protocols) return false;
    end_ = asio::buffer_copy(asio::buffer(buffer_), buffer.data());
    return true;
  }

  // Asks for the streams that the query has, in the order in which others do.
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
    while (true) {
      if (open_.empty() && data_left_ == 0) return done(asio::error::eof, {}, {});
      const std::string_view waiting(buffer_.data() + begin_, end_ - begin_);
      if (data_left_ > 0 && !waiting.empty()) {
        const std::string_view piece = waiting.substr(0, data_left_);
        begin_ += piece.size();
        data_left_ -= piece.size();
        const Channel channel = channel_;
        if (data_left_ == 0 && data_ends_) ended(channel);
        return done({}, channel, piece);
      }
      if (data_left_ > 0 || !take_frame(waiting)) break;
      if (failed_) return done(failed_, {}, {});
    }
    std::copy(buffer_.begin() + begin_, buffer_.begin() + end_, buffer_.begin());
    end_ -= std::exchange(begin_, 0);
    socket_.async_read_some(asio::buffer(buffer_) + end_,
                            [this, done = std::move(done)](error_code error, std::size_t size) mutable {
                              if (error) return done(error, {}, {});
                              end_ += size;
                              receive(std::move(done));
                            });
  }

  void send(std::span<const std::byte> bytes, Sent done) override {
    const std::size_t size = std::min(bytes.size(), kFrame);
    std::string head;
    put(head, id_of(Channel::kIn));
    put(head, static_cast<std::uint32_t>(size));
    write({std::move(head), bytes.first(size),
           [this, rest = bytes.subspan(size), done = std::move(done)](error_code error) mutable {
             if (error || rest.empty()) return done(error);
             send(rest, std::move(done));
           }});
  }

  void keep_alive() override {
    ping_.expires_after(kPing);
    ping_.async_wait([this](error_code stopped) {
      if (stopped) return;
      std::string id;
      put(id, pings_ += 2);
      write({control_frame(kPingFrame, id), {}, [](error_code) {}});
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
    std::string payload;
    put(payload, id_of(stream.channel));
    put(payload, 0);     // of no other stream
    put(payload, 0, 2);  // of no priority, without credentials
    payload += header_block("streamtype", stream.type, streams_.size() == 1);
    write({control_frame(kSynStream, payload), {}, [](error_code) {}});
  }

  // Takes one frame's head, and the whole of a control frame; false: not all of it is there.
  bool take_frame(std::string_view waiting) {
    if (waiting.size() < kHead) return false;
    const std::size_t size = number_at(waiting.data() + 5, 3);
    if ((waiting[0] & 0x80) == 0) {
      const std::uint32_t id = number_at(waiting.data());
      if (id % 2 == 0 || id / 2 >= streams_.size()) return fail(asio::error::invalid_argument);
      begin_ += kHead;
      channel_ = streams_[id / 2].channel;
      data_left_ = size;
      data_ends_ = (waiting[4] & kFin) != 0;
      if (size == 0 && data_ends_) ended(channel_);
      return true;
    }
    if (size > kMostControl) return fail(asio::error::message_size);
    if (waiting.size() < kHead + size) return false;
    begin_ += kHead + size;
    take_control(number_at(waiting.data() + 2, 2), waiting.substr(kHead, size));
    return true;
  }

  void take_control(unsigned type, std::string_view payload) {
    // Of the input's: the command takes no more.
    if (type == kReset && (payload.size() < 4 || number_at(payload.data()) != id_of(Channel::kIn)))
      failed_ = asio::error::connection_reset;
    // The server's pings have even numbers; those of ours come back.
    if (type == kPingFrame && payload.size() == 4 && number_at(payload.data()) % 2 == 0)
      write({control_frame(kPingFrame, std::string(payload)), {}, [](error_code) {}});
  }

  bool fail(error_code why) {
    failed_ = why;
    return true;
  }

  void ended(Channel channel) { std::erase(open_, channel); }

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
  std::vector<Stream> streams_;  // by their ids: 1, 3, 5, ...
  std::vector<Channel> open_;    // of those that the server writes
  std::deque<Frame> queue_;

  std::array<char, kBuffer> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what was not taken yet
  Channel channel_{};                // of the data frame that is being received
  std::size_t data_left_ = 0;        // of it
  bool data_ends_ = false;           // the stream ends with it
  error_code failed_;
};

}  // namespace

std::unique_ptr<Channels> open_spdy(asio::io_context& context, Client& client, const std::string& path,
                                    const Query& query) {
  auto channels = std::make_unique<SpdyChannels>(context, client.connect());
  if (!channels->upgrade(context, client, path, query)) return nullptr;
  channels->open_streams(query);
  return channels;
}

}  // namespace adaptdl::kube
