#include "generation/transfer.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "adaptdl/collective.h"
#include "collective/rank_connections.h"

namespace adaptdl::generation {
namespace {

using collective::CollectiveError;
using TimePoint = net::Clock::time_point;

handshake::Terms terms(const std::string& secret) { return {secret, "states"}; }

constexpr std::chrono::seconds kTick{1};

// A connection whose reads and writes block within limits.
class Stream {
 public:
  Stream(Fd fd, TimePoint deadline, std::function<bool()> give_up)
      : fd_(std::move(fd)), deadline_(deadline), give_up_(std::move(give_up)) {}

  void read(std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t count = ::recv(fd_.get(), out.data(), out.size(), MSG_DONTWAIT);
      if (count == 0) throw CollectiveError("another replica closed the connection while it was sending its states");
      if (advance(count, POLLIN)) out = out.subspan(static_cast<std::size_t>(count));
    }
  }

  void write(std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t count = ::send(fd_.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (advance(count, POLLOUT)) data = data.subspan(static_cast<std::size_t>(count));
    }
  }

 private:
  // Returns true if bytes were transferred. Otherwise, waits until bytes can be transferred, and returns false.
  bool advance(ssize_t count, short events) {
    if (count >= 0) return true;
    if (errno == EINTR) return false;
    if (errno != EAGAIN)
      throw CollectiveError(fmt::format("cannot transfer states between replicas: {}", std::strerror(errno)));
    while (!net::wait_until_ready(fd_.get(), events, std::min(deadline_, net::Clock::now() + kTick))) {
      // Keepalive probes do not detect a lost host while sent data is unacknowledged.
      if (net::host_is_silent(fd_.get()))
        throw CollectiveError("lost another replica while transferring states: its host does not answer");
      if (give_up_()) throw CollectiveError("gave up transferring states: the job continues in a newer generation");
      if (net::Clock::now() >= deadline_) throw CollectiveError("timed out while transferring states between replicas");
    }
    return false;
  }

  Fd fd_;
  TimePoint deadline_;
  std::function<bool()> give_up_;
};

class StreamSink final : public checkpoint::Sink {
 public:
  explicit StreamSink(Stream& stream) : stream_(stream) {}
  using Sink::write;
  void write(std::span<const std::byte> data) override { stream_.write(data); }

 private:
  Stream& stream_;
};

}  // namespace

void send_states(net::Listener& listener, const std::string& secret, const Orders& orders, int replicas,
                 const TransferLimits& limits) {
  const TimePoint deadline = net::Clock::now() + limits.timeout;
  std::set<int> receivers;
  for (const auto& order : orders) receivers.insert(order.first);
  for (auto& [rank, fd] : accept_ranks(listener, terms(secret), receivers, deadline, -1, limits.give_up)) {
    Stream stream(std::move(fd), deadline, limits.give_up);
    StreamSink sink(stream);
    const auto& names = orders.at(rank);
    checkpoint::write_states(sink, replicas, names ? &*names : nullptr);
  }
}

std::shared_ptr<checkpoint::StateStream> receive_states(const std::string& address, std::uint16_t port,
                                                        const std::string& secret, int rank,
                                                        const TransferLimits& limits) {
  const TimePoint deadline = net::Clock::now() + limits.timeout;
  auto stream =
      std::make_shared<Stream>(connect_as(rank, address, port, terms(secret), deadline), deadline, limits.give_up);
  return std::make_shared<checkpoint::StateStream>([stream](std::span<std::byte> out) { stream->read(out); });
}

}  // namespace adaptdl::generation
