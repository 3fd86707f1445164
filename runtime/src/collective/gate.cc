#include "collective/gate.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace adaptdl::collective {
namespace {

constexpr std::chrono::seconds kHelloTimeout{5};
constexpr int kMaxAccepts = 64;
constexpr std::size_t kMaxStrangers = 256;  // beyond a job's own size

}  // namespace

Gate::Gate(const Options& options, net::Fd listener, int epoll, Admit admit, Admitted admitted)
    : options_(options),
      listener_(std::move(listener)),
      epoll_(epoll),
      admit_(std::move(admit)),
      admitted_(std::move(admitted)) {
  watch(listener_.get());
}

void Gate::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTag | static_cast<std::uint32_t>(fd);
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

void Gate::close() noexcept {
  strangers_.clear();
  listener_.reset();
}

void Gate::on_event(std::uint64_t data) {
  const int fd = static_cast<int>(data & ~kTag);
  if (listener_ && fd == listener_.get()) return accept_all();
  const auto stranger = strangers_.find(fd);
  if (stranger != strangers_.end()) hear(stranger);
}

void Gate::on_tick(net::Clock::time_point now) {
  for (auto it = strangers_.begin(); it != strangers_.end();)
    it = it->second.deadline <= now ? strangers_.erase(it) : std::next(it);
  if (listener_ && !accepting_) {
    watch(listener_.get());
    accepting_ = true;
  }
}

void Gate::accept_all() {
  for (int i = 0; i < kMaxAccepts; ++i) {  // then others get their turn
    std::string from;
    net::Fd fd = net::accept_from(listener_.get(), from);
    if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // No descriptors left: the connection stays in the queue, and the event would come again and again.
      ::epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_.get(), nullptr);
      accepting_ = false;
      return;
    }
    if (strangers_.size() >= kMaxStrangers + static_cast<std::size_t>(options_.size))
      strangers_.erase(std::min_element(strangers_.begin(), strangers_.end(), [](const auto& a, const auto& b) {
        return a.second.deadline < b.second.deadline;
      }));
    const int number = fd.get();
    const auto [stranger, fresh] =
        strangers_.emplace(number, Stranger{std::move(fd), std::move(from), "", net::Clock::now() + kHelloTimeout});
    if (!fresh) continue;
    watch(number);
    hear(stranger);  // a replica says hello at once: often it is there already
  }
}

void Gate::hear(std::map<int, Stranger>::iterator stranger) {
  char buffer[2048];
  const ssize_t received = ::recv(stranger->first, buffer, sizeof buffer, MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (received <= 0) {
    strangers_.erase(stranger);
    return;
  }
  stranger->second.heard.append(buffer, static_cast<std::size_t>(received));
  wire::Hello hello;
  switch (wire::parse(stranger->second.heard, hello)) {
    case wire::Parse::kIncomplete:
      return;
    case wire::Parse::kGarbage:
      strangers_.erase(stranger);
      return;
    case wire::Parse::kComplete:
      judge(stranger, hello);
  }
}

std::string Gate::objection(const wire::Hello& hello) const {
  const auto size = static_cast<std::uint32_t>(options_.size);
  if (hello.version != wire::kVersion)
    return fmt::format("it speaks version {} of the protocol, this job version {}", hello.version, wire::kVersion);
  if (hello.job != options_.job) {
    const auto name = [](const std::string& job) { return job.empty() ? "a job without a name" : "job " + job; };
    return fmt::format("it belongs to {}, this is {}", name(hello.job), name(options_.job));
  }
  if (hello.size != size) return fmt::format("it expects {} replicas, this job has {}", hello.size, size);
  if (hello.rank == 0 || hello.rank >= size)
    return fmt::format("rank {} cannot join; ranks 1 to {} can", hello.rank, size - 1);
  if (hello.max_message != options_.max_message)
    return fmt::format("its max_message is {}, this job's is {}", hello.max_message, options_.max_message);
  return admit_(hello);
}

void Gate::judge(std::map<int, Stranger>::iterator stranger, const wire::Hello& hello) {
  const std::string reason = objection(hello);
  net::Fd fd = std::move(stranger->second.fd);
  std::string from = std::move(stranger->second.from);
  strangers_.erase(stranger);
  const std::string answer = wire::encode(wire::Answer{wire::kVersion, reason.empty(), reason});
  // The answer fits into the empty buffer of a new connection; where it does not, nobody waits for it.
  const ssize_t sent = ::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (!reason.empty()) {
    last_refusal_ = fmt::format("a replica at {} was refused: {}", from, reason);
    return;
  }
  if (sent != static_cast<ssize_t>(answer.size())) return;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd.get(), nullptr);
  admitted_(static_cast<int>(hello.rank), std::move(fd), std::move(from));
}

}  // namespace adaptdl::collective
