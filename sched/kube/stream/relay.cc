#include "kube/stream/relay.h"

#include <array>
#include <boost/asio/write.hpp>
#include <chrono>

namespace adaptdl::kube {
namespace {

namespace asio = boost::asio;
using boost::beast::error_code;

constexpr std::size_t kRelayPiece = std::size_t{64} << 10;
constexpr std::size_t kPortHeader = 2;  // each channel begins with its port number
constexpr std::size_t kMaxErrorLength = 2000;
// The protocol cannot signal the end of one direction, and a local client that has disconnected looks like one that
// only listens. After a client's end of file, the client is assumed to have disconnected once the pod has sent nothing
// for this long.
constexpr std::chrono::seconds kSilence(20);
enum PortChannel : unsigned char { kData = 0, kError = 1 };

}  // namespace

void Relay::open(Client& client, const std::string& name_space, const ForwardTarget& target) {
  remote_ = std::make_unique<WebSocket>(context_, client, path(kPods, name_space, target.pod, "portforward"),
                                        Query{{"ports", std::to_string(target.port)}}, "v4.channel.k8s.io");
}

std::string Relay::run() {
  error_code ignored;
  local_.set_option(asio::ip::tcp::no_delay(true), ignored);
  from_remote_.resize(kRelayPiece);
  from_local_.resize(kRelayPiece);
  context_.restart();
  remote_->keep_alive();
  read_remote();
  read_local();
  context_.run();
  local_.close(ignored);
  return error_;
}

void Relay::read_remote() {
  remote_->stream().async_read_some(asio::buffer(from_remote_), [this](error_code error, std::size_t size) {
    if (error) return end();
    if (silence_) local_ended();
    take(size);
  });
}

void Relay::take(std::size_t size) {
  std::size_t begin = 0;
  if (message_begins_ && size > 0) channel_ = static_cast<unsigned char>(from_remote_[begin++]);
  if (size > 0) message_begins_ = remote_->stream().is_message_done();
  if (channel_ > kError) return read_remote();
  const std::size_t header = std::min(kPortHeader - headers_[channel_], size - begin);
  headers_[channel_] += header;
  begin += header;
  if (begin == size) return read_remote();
  if (channel_ == kError) {
    error_.append(from_remote_.data() + begin, std::min(size - begin, kMaxErrorLength - error_.size()));
    return read_remote();
  }
  asio::async_write(local_, asio::buffer(from_remote_.data() + begin, size - begin),
                    [this](error_code error, std::size_t) {
                      if (error) return end();
                      read_remote();
                    });
}

void Relay::read_local() {
  local_.async_read_some(asio::buffer(from_local_), [this](error_code error, std::size_t size) {
    if (error == asio::error::eof) return local_ended();
    if (error) return end();
    static const char kTo = kData;
    const std::array<asio::const_buffer, 2> frame{asio::buffer(&kTo, 1), asio::buffer(from_local_.data(), size)};
    remote_->stream().async_write(frame, [this](error_code failed, std::size_t) {
      if (failed) return end();
      read_local();
    });
  });
}

void Relay::local_ended() {
  if (!silence_) silence_ = std::make_unique<asio::steady_timer>(context_);
  silence_->expires_after(kSilence);
  silence_->async_wait([this](error_code error) {
    if (!error) end();
  });
}

void Relay::end() { context_.stop(); }

}  // namespace adaptdl::kube
