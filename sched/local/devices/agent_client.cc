#include "local/devices/agent_client.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "local/base/runtime_directory.h"
#include "local/devices/agent.h"
#include "local/devices/agent_message.h"
#include "local/devices/agent_process.h"

namespace adaptdl::sched {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMinPause{10}, kFirstPause{50}, kMaxPause{2000};

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

void watch(const Fd& events, const Fd& fd, std::uint32_t what, int operation) {
  epoll_event event{};
  event.events = what;
  event.data.fd = fd.get();
  ::epoll_ctl(events.get(), operation, fd.get(), &event);
}

}  // namespace

AgentClient::AgentClient(AgentRequest request, AgentOptions options)
    : request_(std::move(request)),
      options_(std::move(options)),
      socket_path_(runtime_directory() / kAgentSocket),
      id_(random_id()),
      submitted_(seconds_since_epoch()),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      random_(std::random_device()()),
      longest_pause_(kFirstPause) {
  if (!events_ || !timer_)
    throw Error(fmt::format("cannot watch the agent: {}; a higher `ulimit -n` may help", std::strerror(errno)));
  watch(events_, timer_, EPOLLIN, EPOLL_CTL_ADD);
  connect();
}

AgentClient::~AgentClient() {
  if (!socket_) return;
  // After a partly sent message, no other message can be sent. The agent notices the end of the connection in any case.
  if (!outgoing_.empty()) return;
  RunMessage farewell;
  farewell.id = id_;
  farewell.leaves = true;
  const std::string line = to_line(farewell);
  [[maybe_unused]] const ssize_t sent = ::send(socket_.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void AgentClient::connect() {
  socket_ = connect_to(socket_path_);
  if (!socket_) {
    start_agent(options_.program, socket_path_.parent_path());
    return try_later();
  }
  set_nonblocking(socket_);
  watch(events_, socket_, EPOLLIN, EPOLL_CTL_ADD);
  first_ = unsent_ = true;
  send();
}

void AgentClient::disconnect() {
  socket_.reset();
  incoming_.clear();
  outgoing_.clear();
  try_later();
}

// The pause is random so that runs that lose the same agent do not all reconnect at once.
void AgentClient::try_later() {
  const auto pause =
      milliseconds(std::uniform_int_distribution<std::int64_t>(kMinPause.count(), longest_pause_.count())(random_));
  longest_pause_ = std::min(2 * longest_pause_, kMaxPause);
  itimerspec time{};
  time.it_value.tv_sec = pause.count() / 1000;
  time.it_value.tv_nsec = pause.count() % 1000 * 1'000'000;
  ::timerfd_settime(timer_.get(), 0, &time, nullptr);
}

std::string AgentClient::message(bool first) const {
  const double service = options_.device_time == nullptr ? 0 : options_.device_time->seconds(Clock::now());
  RunMessage message;
  message.id = id_;
  message.seen = seen_;
  message.fairness = options_.fairness;
  message.user = {request_.name,           request_.kind, request_.min, request_.max, request_.devices, request_.held,
                  request_.pinned,         submitted_,    service,      changes_,     request_.hints,   request_.weight,
                  request_.preferred_count};
  // An agent that does not know this run yet must not give away devices that the run may be about to use.
  if (first) {
    for (const std::string& device : allocated_)
      if (std::ranges::find(request_.held, device) == request_.held.end()) message.user.held.push_back(device);
  }
  return to_line(message);
}

void AgentClient::send() {
  while (socket_) {
    if (outgoing_.empty()) {
      if (!unsent_) break;
      outgoing_ = message(first_);
      // The first message reports the whole allocation as held, so a second message must report the devices that are
      // actually held.
      unsent_ = std::exchange(first_, false) && !allocated_.empty();
    }
    const ssize_t sent = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) return disconnect();
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
  watch_socket();
}

void AgentClient::watch_socket() {
  if (socket_) watch(events_, socket_, outgoing_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
}

std::optional<DeviceAllocation> AgentClient::receive() {
  std::optional<DeviceAllocation> newest;
  char buffer[4096];
  while (socket_) {
    const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0 || incoming_.size() + static_cast<std::size_t>(count) > kMaxMessageLength) {
      disconnect();
      break;
    }
    incoming_.append(buffer, static_cast<std::size_t>(count));
    std::size_t end;
    while (socket_ && (end = incoming_.find('\n')) != std::string::npos) {
      const std::string line = incoming_.substr(0, end);
      incoming_.erase(0, end + 1);
      take_line(line, newest);
    }
  }
  return newest;
}

void AgentClient::take_line(std::string_view line, std::optional<DeviceAllocation>& newest) {
  try {
    DeviceShare share = parse_share(line);
    longest_pause_ = kFirstPause;
    seen_ = share.number;
    newest = {std::move(share.devices), std::move(share.reason)};
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      log::warn(fmt::format("devices are not shared with other runs: {}", error.what()));
    disconnect();
  }
}

std::optional<DeviceAllocation> AgentClient::take() {
  std::uint64_t expired = 0;
  if (::read(timer_.get(), &expired, sizeof expired) > 0 && !socket_) connect();
  auto newest = receive();
  if (newest) {
    if (!allocated_.empty() && newest->devices != allocated_) ++changes_;
    allocated_ = newest->devices;
    unsent_ = true;
  }
  send();
  return newest;
}

void AgentClient::update(AgentRequest request) {
  request_ = std::move(request);
  unsent_ = true;
  send();
}

std::optional<int> AgentClient::agent_pid() const noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!socket_ || ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return peer.pid;
}

}  // namespace adaptdl::sched
