#include "protocol/gate.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "adaptdl/error.h"
#include "base/libcrypto.h"

namespace adaptdl {
namespace {

constexpr int kMaxAccepts = 64;

}  // namespace

Gate::Gate(Options options, Fd listener, Judge judge)
    : options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      listener_(std::move(listener)),
      judge_(std::move(judge)) {
  if (!epoll_) throw Error("no file descriptors left for listening; raise `ulimit -n`");
  // Load the library here, so that the error for a missing library is thrown in the owner, not in the thread that
  // serves the gate.
  if (!options_.terms.secret.empty()) libcrypto();
  watch(listener_.get());
}

void Gate::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Gate::close() noexcept {
  pending_.clear();
  listener_.reset();
  epoll_.reset();
}

void Gate::serve() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  // Handle pending connections first, because new connections may replace them.
  for (int i = 0; i < count; ++i)
    if (const auto pending = pending_.find(events[i].data.fd); pending != pending_.end()) receive(pending);
  for (int i = 0; i < count; ++i)
    if (listener_ && events[i].data.fd == listener_.get()) accept_all();
}

void Gate::on_tick(net::Clock::time_point now) {
  std::erase_if(pending_, [now](const auto& pending) { return pending.second.deadline <= now; });
  if (listener_ && !accepting_) {
    watch(listener_.get());
    accepting_ = true;
  }
}

void Gate::accept_all() {
  for (int i = 0; i < kMaxAccepts; ++i) {  // leave time for other events
    std::string from;
    Fd fd = net::accept_from(listener_.get(), from);
    if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // No descriptors are left. The connection stays in the queue, so its event would be reported again and again.
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      accepting_ = false;
      return;
    }
    if (pending_.size() >= options_.max_pending)
      pending_.erase(std::min_element(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) {
        return a.second.deadline < b.second.deadline;
      }));
    const int number = fd.get();
    const auto [pending, fresh] = pending_.emplace(
        number, Pending{std::move(fd), std::move(from), handshake::AcceptingEnd(options_.terms, options_.max_request),
                        net::Clock::now() + options_.handshake_time});
    if (!fresh) continue;
    watch(number);
    receive(pending);  // a replica sends its opening immediately, so the opening has often arrived
    if (!listener_) return;
  }
}

void Gate::receive(PendingMap::iterator pending) {
  char buffer[2048];
  const ssize_t received = ::recv(pending->first, buffer, sizeof buffer, MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (received <= 0) {
    pending_.erase(pending);
    return;
  }
  handshake::AcceptingEnd& end = pending->second.end;
  std::string reply;
  const handshake::Step step = end.take({buffer, static_cast<std::size_t>(received)}, reply);
  // The send buffer of a new connection is empty, so the reply fits. If it does not, the handshake times out.
  if (!reply.empty()) ::send(pending->first, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (step == handshake::Step::kProved) return judge(pending);
  if (step == handshake::Step::kIncomplete) return;
  if (!end.why().empty()) refuse(pending->second.from, end.why());
  pending_.erase(pending);
}

void Gate::judge(PendingMap::iterator pending) {
  Pending known = std::move(pending->second);
  pending_.erase(pending);
  const Verdict verdict = judge_(known.end.request(), known.from);
  const std::string answer = known.end.answer(verdict.answer);
  const ssize_t sent = ::send(known.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (!verdict.admit) return refuse(known.from, verdict.refusal);
  if (sent != static_cast<ssize_t>(answer.size())) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, known.fd.get(), nullptr);
  verdict.admit(std::move(known.fd));
}

void Gate::refuse(const std::string& from, const std::string& why) {
  last_refusal_ = fmt::format("a replica at {} was refused: {}", from, why);
}

}  // namespace adaptdl
