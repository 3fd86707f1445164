#include "generation/transfer.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "adaptdl/collective.h"

namespace adaptdl::generation {
namespace {

using collective::CollectiveError;
using TimePoint = net::Clock::time_point;

constexpr int kMostPollMs = 60000;

// What a receiver begins with.
struct Hello {
  std::uint64_t token = 0;
  std::uint64_t rank = 0;
};

// A connection whose reads and writes wait, up to a deadline.
class Stream {
 public:
  Stream(net::Fd fd, TimePoint deadline) : fd_(std::move(fd)), deadline_(deadline) {}

  void read(std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t count = ::recv(fd_.get(), out.data(), out.size(), MSG_DONTWAIT);
      if (count == 0) throw CollectiveError("a member closed the connection over which it sends its states");
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
  // True if something went through; else waits until something can.
  bool advance(ssize_t count, short events) {
    if (count >= 0) return true;
    if (errno == EINTR) return false;
    if (errno != EAGAIN)
      throw CollectiveError(fmt::format("states cannot be sent to another replica: {}", std::strerror(errno)));
    pollfd ready{fd_.get(), events, 0};
    if (::poll(&ready, 1, net::poll_timeout(deadline_, kMostPollMs)) == 0 && net::Clock::now() >= deadline_)
      throw CollectiveError("states were not sent to another replica in time");
    return false;
  }

  net::Fd fd_;
  TimePoint deadline_;
};

class StreamSink final : public checkpoint::Sink {
 public:
  explicit StreamSink(Stream& stream) : stream_(stream) {}
  using Sink::write;
  void write(std::span<const std::byte> data) override { stream_.write(data); }

 private:
  Stream& stream_;
};

net::Fd next_connection(net::Listener& listener, TimePoint deadline) {
  for (;;) {
    std::string from;
    if (net::Fd fd = net::accept_from(listener.fd.get(), from)) return fd;
    pollfd ready{listener.fd.get(), POLLIN, 0};
    if (::poll(&ready, 1, net::poll_timeout(deadline, kMostPollMs)) == 0 && net::Clock::now() >= deadline)
      throw CollectiveError("a replica did not fetch its states in time");
  }
}

// Who that is; none if it is no receiver.
std::optional<int> hear(Stream& stream, std::uint64_t token, const Orders& orders) {
  Hello hello;
  try {
    stream.read(std::as_writable_bytes(std::span(&hello, 1)));
  } catch (const CollectiveError&) {
    return {};
  }
  const auto rank = static_cast<int>(hello.rank);
  if (hello.token != token || !orders.contains(rank)) return {};
  return rank;
}

}  // namespace

void send_states(net::Listener& listener, std::uint64_t token, const Orders& orders, int replicas,
                 std::chrono::milliseconds timeout) {
  const TimePoint deadline = net::Clock::now() + timeout;
  std::set<int> served;
  while (served.size() < orders.size()) {
    Stream stream(next_connection(listener, deadline), deadline);
    const auto rank = hear(stream, token, orders);
    if (!rank || !served.insert(*rank).second) continue;
    StreamSink sink(stream);
    const auto& names = orders.at(*rank);
    checkpoint::write_states(sink, replicas, names ? &*names : nullptr);
  }
}

std::shared_ptr<checkpoint::StateStream> receive_states(const std::string& address, std::uint16_t port,
                                                        std::uint64_t token, int rank,
                                                        std::chrono::milliseconds timeout) {
  const TimePoint deadline = net::Clock::now() + timeout;
  std::string why;
  net::Fd fd = net::connect_to(address, port, deadline, why);
  if (!fd)
    throw CollectiveError(
        fmt::format("the member that sends its states cannot be reached at {}: {}", net::endpoint(address, port), why));
  auto stream = std::make_shared<Stream>(std::move(fd), deadline);
  const Hello hello{token, static_cast<std::uint64_t>(rank)};
  stream->write(std::as_bytes(std::span(&hello, 1)));
  return std::make_shared<checkpoint::StateStream>([stream](std::span<std::byte> out) { stream->read(out); });
}

}  // namespace adaptdl::generation
