#include "collective/rank_connections.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "adaptdl/collective.h"
#include "base/little_endian.h"
#include "protocol/gate.h"

namespace adaptdl {
namespace {

using collective::CollectiveError;

constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::milliseconds kRetryPause{50};
constexpr int kMaxPollMs = 60000;
constexpr std::size_t kMaxPending = 256;  // in addition to the awaited ranks
constexpr std::string_view kAccepted = "accepted";

// Returns an invalid descriptor if the other end closed the connection, which happens when that end has too many
// pending connections.
Fd try_connect(int rank, const std::string& address, std::uint16_t port, const handshake::Terms& terms,
               net::Clock::time_point deadline) {
  const auto fail = [&](const std::string& why) {
    throw CollectiveError(fmt::format("cannot reach another replica at {}: {}", net::endpoint(address, port), why));
  };
  std::string why;
  Fd fd = net::connect_to(address, port, deadline, why);
  if (!fd) fail(why);
  handshake::ConnectingEnd end(terms, little_endian(static_cast<std::uint32_t>(rank)), kAccepted.size());
  const auto wait = [&] { return net::wait_until_ready(fd.get(), POLLIN, deadline); };
  switch (handshake::run(end, fd.get(), wait)) {
    case handshake::Step::kIncomplete:
      if (net::Clock::now() >= deadline) fail("it does not answer");
      return {};
    case handshake::Step::kRefused:
      fail(end.why().empty() ? "the process listening there is not a replica of adaptdl" : end.why());
      break;
    case handshake::Step::kProved:
      if (end.answer() != kAccepted) fail("it is not waiting for this replica");
  }
  return fd;
}

}  // namespace

std::map<int, Fd> accept_ranks(net::Listener& listener, const handshake::Terms& terms, const std::set<int>& ranks,
                               net::Clock::time_point deadline, int stop, const std::function<bool()>& give_up) {
  std::map<int, Fd> connected;
  const auto judge = [&](std::string_view request, const std::string&) -> Gate::Verdict {
    if (request.size() != sizeof(std::uint32_t)) return {};
    const auto rank = static_cast<int>(get_little_endian<std::uint32_t>(request.data()));
    if (!ranks.contains(rank) || connected.contains(rank)) return {};
    return {std::string(kAccepted), [&connected, rank](Fd fd) { connected.emplace(rank, std::move(fd)); }};
  };
  Gate gate({.terms = terms, .max_request = sizeof(std::uint32_t), .max_pending = kMaxPending + ranks.size()},
            std::move(listener.fd), judge);
  auto tick = net::Clock::now() + kTick;
  while (connected.size() < ranks.size()) {
    pollfd ready[] = {{gate.fd(), POLLIN, 0}, {stop, POLLIN, 0}};
    ::poll(ready, 2, net::poll_timeout(std::min(deadline, tick), kMaxPollMs));
    if (ready[1].revents != 0) throw CollectiveError("gave up waiting for other replicas");
    gate.serve();
    const auto now = net::Clock::now();
    if (connected.size() < ranks.size() && now >= deadline)
      throw CollectiveError("another replica did not connect in time");
    if (now < tick) continue;
    if (connected.size() < ranks.size() && give_up()) throw CollectiveError("gave up waiting for other replicas");
    gate.on_tick(now);
    tick = now + kTick;
  }
  return connected;
}

Fd connect_as(int rank, const std::string& address, std::uint16_t port, const handshake::Terms& terms,
              net::Clock::time_point deadline) {
  Fd fd;
  while (!(fd = try_connect(rank, address, port, terms, deadline))) std::this_thread::sleep_for(kRetryPause);
  return fd;
}

}  // namespace adaptdl
