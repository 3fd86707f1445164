#include "http/tunnel.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "adaptdl/sigpipe.h"
#include "base/fd.h"
#include "http/transfer.h"

namespace adaptdl::http {
namespace {

constexpr std::size_t kBuffer = std::size_t{256} << 10;

// Bytes in transit. They are not moved until they are sent, because retrying a TLS write that would have blocked
// requires passing the same buffer again.
class Buffer {
 public:
  bool empty() const { return begin_ == end_; }
  bool has_room() const { return end_ < bytes_.size(); }
  char* data() { return bytes_.data() + begin_; }
  std::size_t size() const { return end_ - begin_; }
  char* room() { return bytes_.data() + end_; }
  std::size_t room_size() const { return bytes_.size() - end_; }
  void add(std::size_t size) { end_ += size; }
  void remove(std::size_t size) {
    begin_ += size;
    if (empty()) begin_ = end_ = 0;
  }

 private:
  std::vector<char> bytes_ = std::vector<char>(kBuffer);
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace

struct Tunnel::Impl {
  Transfer transfer;
  Easy easy = new_easy();
  int server = -1;
  Fd user, local;
  std::atomic<bool> stopping = false;
  Buffer in, out;
  bool in_ended = false, out_ended = false;  // the server, or the user, will send nothing more
  bool out_blocked = false;
  std::jthread thread;

  // Each of these functions does what is possible without waiting, and returns whether it did anything.
  bool receive() {
    bool some = false;
    while (!in_ended && in.has_room()) {
      std::size_t got = 0;
      const CURLcode code = curl().easy_recv(easy.get(), in.room(), in.room_size(), &got);
      if (code == CURLE_AGAIN) break;
      in_ended = code != CURLE_OK || got == 0;
      in.add(got);
      some = true;
    }
    return some;
  }
  bool deliver() {
    if (in.empty()) return false;
    const ssize_t sent = ::send(local.get(), in.data(), in.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) in.remove(static_cast<std::size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {  // the user has closed the socket
      in.remove(in.size());
      in_ended = true;
    }
    return sent > 0;
  }
  bool collect() {
    if (out_ended || !out.has_room()) return false;
    const ssize_t got = ::recv(local.get(), out.room(), out.room_size(), MSG_DONTWAIT);
    if (got > 0) out.add(static_cast<std::size_t>(got));
    out_ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    return got > 0;
  }
  bool send() {
    bool some = false;
    for (out_blocked = false; !out.empty();) {
      std::size_t sent = 0;
      const CURLcode code = curl().easy_send(easy.get(), out.data(), out.size(), &sent);
      if (code == CURLE_OK) {
        out.remove(sent);
        some = true;
      } else if (code == CURLE_AGAIN) {
        out_blocked = true;
        break;
      } else {
        out.remove(out.size());
        out_ended = true;
      }
    }
    return some;
  }
  bool done() const {
    if (in_ended && in.empty()) return true;
    return out_ended && (out.empty() || (stopping && out_blocked));
  }
  void wait() {
    const auto when = [](bool condition, int event) { return static_cast<short>(condition ? event : 0); };
    pollfd ends[] = {{server, 0, 0}, {local.get(), 0, 0}};
    ends[0].events = static_cast<short>(when(!in_ended && in.has_room(), POLLIN) | when(out_blocked, POLLOUT));
    ends[1].events = static_cast<short>(when(!out_ended && out.has_room(), POLLIN) | when(!in.empty(), POLLOUT));
    // Exclude an end that needs no events: a hang-up that cannot be handled yet would wake poll(2) again and again.
    if (ends[0].events == 0) ends[0].fd = -1;
    if (ends[1].events == 0 && out_ended) ends[1].fd = -1;
    ::poll(ends, 2, -1);
    if ((ends[1].revents & POLLHUP) && !out.has_room())
      out_ended = true;  // the user has hung up, and the server is not reading
  }
  void pump() {
    const SigpipeGuard guard;
    while (!done()) {
      const bool received = receive(), delivered = deliver(), collected = collect(), sent = send();
      if (!received && !delivered && !collected && !sent && !done()) wait();
    }
    ::shutdown(local.get(), SHUT_RDWR);
  }
};

Tunnel::Tunnel(const Request& request) : impl_(std::make_unique<Impl>()) {
  CURL* const handle = impl_->easy.get();
  set_target(handle, request, impl_->transfer);
  curl().easy_setopt(handle, CURLOPT_CONNECT_ONLY, 1L);
  curl().easy_setopt(handle, CURLOPT_HTTPPROXYTUNNEL, 1L);
  curl().easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request.connect_timeout.count()));
  const SigpipeGuard guard;
  if (const CURLcode code = curl().easy_perform(handle); code != CURLE_OK) fail(handle, code, request, impl_->transfer);
  curl_socket_t server = CURL_SOCKET_BAD;
  curl().easy_getinfo(handle, CURLINFO_ACTIVESOCKET, &server);
  int ends[2];
  if (server == CURL_SOCKET_BAD || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(fmt::format("cannot create a socket pair: {}", std::strerror(errno)));
  impl_->server = server;
  impl_->user = Fd(ends[0]);
  impl_->local = Fd(ends[1]);
  impl_->thread = std::jthread([impl = impl_.get()] { impl->pump(); });
}

Tunnel::~Tunnel() {
  impl_->stopping = true;
  ::shutdown(impl_->user.get(), SHUT_RDWR);  // wakes the thread
}

int Tunnel::fd() const { return impl_->user.get(); }

}  // namespace adaptdl::http
