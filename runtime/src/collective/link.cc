#include "collective/link.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace adaptdl::collective {
namespace {

constexpr std::size_t kBuffer = 64 << 10;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void Link::queue(const wire::Frame& header, std::shared_ptr<const Bytes> payload) {
  queue_.push_back({wire::encode_head(header, payload->size()), std::move(payload)});
  queued_bytes_ += queue_.back().size();
}

bool Link::send_some() {
  while (!queue_.empty()) {
    Out& out = queue_.front();
    const std::size_t head_sent = std::min(out.sent, out.head.size());
    const std::size_t payload_sent = out.sent - head_sent;
    std::array<iovec, 2> parts{
        {{out.head.data() + head_sent, out.head.size() - head_sent},
         {const_cast<char*>(out.payload->data()) + payload_sent, out.payload->size() - payload_sent}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && would_block(errno)) return true;
    if (sent < 0) return lost(errno);
    out.sent += static_cast<std::size_t>(sent);
    queued_bytes_ -= static_cast<std::size_t>(sent);
    if (out.sent == out.size()) queue_.pop_front();
  }
  return true;
}

bool Link::receive(std::string_view& bytes) {
  thread_local std::array<char, kBuffer> buffer;
  ssize_t received = 0;
  do received = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  while (received < 0 && errno == EINTR);
  bytes = {};
  if (received < 0) return would_block(errno) || lost(errno);
  if (received == 0) return lost(0);
  bytes = {buffer.data(), static_cast<std::size_t>(received)};
  return true;
}

bool Link::lost(int error) {
  if (error == 0 || error == EPIPE || error == ECONNRESET)
    why_ = "connection closed";
  else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    why_ = "its host does not answer";
  else
    why_ = std::strerror(error);
  return false;
}

void Link::finish_sending() noexcept { ::shutdown(fd_.get(), SHUT_WR); }

std::size_t Link::unacknowledged() const noexcept {
  int bytes = 0;
  return ::ioctl(fd_.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace adaptdl::collective
