#include "group/rendezvous_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/signals_blocked.h"
#include "protocol/secret.h"

namespace adaptdl {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kTick{1};

Fd make_event() {
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw Error(fmt::format("cannot create an event descriptor: {}", std::strerror(errno)));
  return event;
}

std::string bytes(const json& request, const char* name) {
  const auto& binary = request.at(name).get_binary();
  return {binary.begin(), binary.end()};
}

json binary(const std::string& value) { return json::binary({value.begin(), value.end()}); }

}  // namespace

handshake::Terms rendezvous_terms(const std::string& secret) { return {secret_for(secret), "rendezvous"}; }

RendezvousServer::RendezvousServer(const std::string& address, std::chrono::milliseconds handshake_time)
    : secret_(make_secret()), gate_(make_gate(address, handshake_time)), stop_(make_event()) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { serve(); });
}

RendezvousServer::~RendezvousServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

Gate RendezvousServer::make_gate(const std::string& address, std::chrono::milliseconds handshake_time) {
  net::Listener listener = net::listen_at(address);
  port_ = listener.port;
  const auto judge = [this](std::string_view, const std::string&) {
    return Gate::Verdict{"", [this](Fd fd) { clients_.emplace_back().fd = std::move(fd); }};
  };
  return Gate({.terms = rendezvous_terms(secret_), .max_request = 0, .handshake_time = handshake_time},
              std::move(listener.fd), judge);
}

void RendezvousServer::serve() {
  auto tick = net::Clock::now() + kTick;
  for (;;) {
    std::vector<pollfd> polled{{stop_.get(), POLLIN, 0}, {gate_.fd(), POLLIN, 0}};
    for (const Client& client : clients_)
      polled.push_back({client.fd.get(), static_cast<short>(client.unsent.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    if (::poll(polled.data(), polled.size(), net::poll_timeout(tick, 60000)) < 0) continue;
    if (polled[0].revents != 0) return;

    std::size_t i = 2;
    std::erase_if(clients_, [&](Client& client) {
      return (polled[i++].revents & (POLLIN | POLLERR | POLLHUP)) != 0 && !receive(client);
    });
    answer_waiting();
    std::erase_if(clients_, [](Client& client) { return !send_some(client); });
    if (polled[1].revents != 0) gate_.serve();
    if (net::Clock::now() < tick) continue;
    tick = net::Clock::now() + kTick;
    gate_.on_tick(net::Clock::now());
  }
}

bool RendezvousServer::receive(Client& client) {
  char buffer[kReadSize];
  const ssize_t size = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (size < 0) return would_block();
  if (size == 0) return false;
  client.received.append(buffer, static_cast<std::size_t>(size));
  try {
    while (const auto body = take_message(client.received)) handle(client, json::from_cbor(*body));
    return true;
  } catch (const std::exception&) {  // not a message of this protocol
    return false;
  }
}

bool RendezvousServer::send_some(Client& client) {
  if (client.unsent.empty()) return true;
  const ssize_t size = ::send(client.fd.get(), client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL);
  if (size < 0) return would_block();
  client.unsent.erase(0, static_cast<std::size_t>(size));
  return true;
}

void RendezvousServer::handle(Client& client, const json& request) {
  const auto op = request.at("op").get<std::string>();
  if (op == "wait") {
    client.awaited = request.at("keys").get<std::vector<std::string>>();
    if (client.awaited.empty()) client.unsent += to_message("\xa0");  // {} in CBOR
    return;
  }
  json answer = json::object();
  const auto key = request.value("key", std::string());
  const auto found = values_.find(key);
  const bool present = found != values_.end();
  if (op == "set") {
    values_[key] = bytes(request, "value");
  } else if (op == "get") {
    if (present) answer["value"] = binary(found->second);
  } else if (op == "add") {
    const auto sum = (present ? std::stoll(found->second) : 0) + request.at("amount").get<std::int64_t>();
    values_[key] = std::to_string(sum);
    answer["number"] = sum;
  } else if (op == "swap") {
    const auto expected = bytes(request, "expected"), desired = bytes(request, "desired");
    const bool swaps = present ? found->second == expected : expected.empty();
    if (swaps) values_[key] = desired;
    answer["value"] = binary(swaps ? desired : present ? found->second : expected);
  } else if (op == "delete") {
    answer["found"] = values_.erase(key) > 0;
  } else if (op == "check") {
    answer["found"] = has_all(request.at("keys").get<std::vector<std::string>>());
  } else if (op == "count") {
    answer["number"] = values_.size();
  } else {
    throw Error(fmt::format("unknown operation '{}'", op));
  }
  const auto body = json::to_cbor(answer);
  client.unsent += to_message({body.begin(), body.end()});
}

void RendezvousServer::answer_waiting() {
  for (Client& client : clients_) {
    if (client.awaited.empty() || !has_all(client.awaited)) continue;
    client.awaited.clear();
    client.unsent += to_message("\xa0");
  }
}

bool RendezvousServer::has_all(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(keys, [this](const std::string& key) { return values_.contains(key); });
}

}  // namespace adaptdl
