#include "group/rendezvous_store.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "adaptdl/collective.h"
#include "adaptdl/error.h"

namespace adaptdl {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kConnectPause{100};

json binary(const RendezvousStore::Value& value) { return json::binary(value); }

RendezvousStore::Value value_of(const json& answer) {
  const auto& bytes = answer.at("value").get_binary();
  return {bytes.begin(), bytes.end()};
}

// Waits until `fd` is ready. Throws Error at the deadline.
void await(int fd, short events, net::Clock::time_point deadline) {
  if (!net::wait_until_ready(fd, events, deadline)) throw Error("timed out");
}

}  // namespace

RendezvousStore::RendezvousStore(RendezvousPlace place, std::chrono::milliseconds timeout,
                                 std::shared_ptr<RendezvousServer> server)
    : c10d::Store(timeout), place_(std::move(place)), server_(std::move(server)) {}

void RendezvousStore::set(const std::string& key, const Value& value) {
  ask({{"op", "set"}, {"key", key}, {"value", binary(value)}}, timeout_);
}

RendezvousStore::Value RendezvousStore::compareSet(const std::string& key, const Value& expected,
                                                   const Value& desired) {
  return value_of(
      ask({{"op", "swap"}, {"key", key}, {"expected", binary(expected)}, {"desired", binary(desired)}}, timeout_));
}

RendezvousStore::Value RendezvousStore::get(const std::string& key) {
  wait({key});
  return value_of(ask({{"op", "get"}, {"key", key}}, timeout_));
}

std::int64_t RendezvousStore::add(const std::string& key, std::int64_t amount) {
  return ask({{"op", "add"}, {"key", key}, {"amount", amount}}, timeout_).at("number").get<std::int64_t>();
}

bool RendezvousStore::deleteKey(const std::string& key) {
  return ask({{"op", "delete"}, {"key", key}}, timeout_).at("found").get<bool>();
}

bool RendezvousStore::check(const std::vector<std::string>& keys) {
  return ask({{"op", "check"}, {"keys", keys}}, timeout_).at("found").get<bool>();
}

std::int64_t RendezvousStore::getNumKeys() { return ask({{"op", "count"}}, timeout_).at("number").get<std::int64_t>(); }

void RendezvousStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void RendezvousStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  ask({{"op", "wait"}, {"keys", keys}}, timeout);
}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() {
  return c10::make_intrusive<RendezvousStore>(place_, timeout_, server_);
}

json RendezvousStore::ask(const json& request, std::chrono::milliseconds timeout) {
  const auto deadline = net::Clock::now() + (timeout == kNoTimeout ? std::chrono::hours(24 * 365) : timeout);
  const auto body = json::to_cbor(request);
  const std::lock_guard lock(mutex_);
  try {
    if (!fd_) connect(deadline);
    send(to_message({body.begin(), body.end()}), deadline);
    return json::from_cbor(receive(deadline));
  } catch (const std::exception& error) {
    fd_.reset();  // a late answer would be mistaken for the answer to the next request
    throw collective::CollectiveError(fmt::format("rendezvous at {}: request '{}' failed: {}",
                                                  net::endpoint(place_.host, place_.port),
                                                  request.at("op").get<std::string>(), error.what()));
  }
}

void RendezvousStore::connect(net::Clock::time_point deadline) {
  std::string why = "timed out";
  while (!try_connect(deadline, why)) {
    if (net::Clock::now() + kConnectPause >= deadline) throw Error(why);
    std::this_thread::sleep_for(kConnectPause);
  }
}

// Returns whether the connection was established; if not, sets `why`. Throws Error if the server is not the expected
// server.
bool RendezvousStore::try_connect(net::Clock::time_point deadline, std::string& why) {
  Fd fd = net::connect_to(place_.host, place_.port, deadline, why);
  if (!fd) return false;
  handshake::ConnectingEnd end(rendezvous_terms(place_.secret), "", 0);
  const auto wait = [&] { return net::wait_until_ready(fd.get(), POLLIN, deadline); };
  const handshake::Step step = handshake::run(end, fd.get(), wait);
  if (step == handshake::Step::kRefused)
    throw Error(end.why().empty() ? "the process listening there is not a replica of adaptdl" : end.why());
  if (step == handshake::Step::kIncomplete) {
    why = net::Clock::now() >= deadline ? "timed out" : "connection closed";
    return false;
  }
  received_.clear();
  fd_ = std::move(fd);
  return true;
}

void RendezvousStore::send(const std::string& message, net::Clock::time_point deadline) {
  for (std::size_t sent = 0; sent < message.size();) {
    const ssize_t size = ::send(fd_.get(), message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (size >= 0)
      sent += static_cast<std::size_t>(size);
    else if (would_block())
      await(fd_.get(), POLLOUT, deadline);
    else
      throw Error(std::strerror(errno));
  }
}

std::string RendezvousStore::receive(net::Clock::time_point deadline) {
  for (;;) {
    if (auto body = take_message(received_)) return std::move(*body);
    await(fd_.get(), POLLIN, deadline);
    char buffer[kReadSize];
    const ssize_t size = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (size == 0) throw Error("connection closed");
    if (size < 0 && !would_block()) throw Error(std::strerror(errno));
    if (size > 0) received_.append(buffer, static_cast<std::size_t>(size));
  }
}

}  // namespace adaptdl
