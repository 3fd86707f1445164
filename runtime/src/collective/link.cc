#include "collective/link.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
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

namespace {

// Returns the number of bytes that remain to be delivered. Once none remain, or if the connection is lost, closes the
// link and returns nullopt.
std::optional<std::size_t> deliver_some(Link& link) {
  const bool had_output = link.queued_bytes() > 0;
  bool alive = link.send_some();
  if (alive && had_output && link.queued_bytes() == 0) link.finish_sending();
  std::string_view discarded;
  do alive = alive && link.receive(discarded);
  while (alive && !discarded.empty());
  const std::size_t left = alive ? link.queued_bytes() + link.unacknowledged() : 0;
  if (left > 0) return left;
  link.close();
  return {};
}

}  // namespace

void deliver_and_close(const std::vector<Link*>& links) {
  for (Link* link : links)
    if (link->open() && link->queued_bytes() == 0) link->finish_sending();
  std::size_t left_before = 0;
  for (auto progress = net::Clock::now();;) {
    std::size_t left = 0;
    for (Link* link : links)
      if (link->open()) left += deliver_some(*link).value_or(0);
    if (std::none_of(links.begin(), links.end(), [](const Link* link) { return link->open(); })) return;
    const auto now = net::Clock::now();
    if (left != left_before) progress = now;
    if (now - progress > linger_stall) return;
    left_before = left;
    ::usleep(500);
  }
}

}  // namespace adaptdl::collective
