// The key-value server of a process group: holds the addresses by which the replicas' backends find each other.
//
// LibTorch's own, TCPStore, listens on all interfaces, answers anyone, and allocates what a message asks for. This one
// listens on one address, drops connections that do not prove to have its secret, and bounds messages by kMaxMessage.
//
// Protocol: a handshake (handshake.h) with an empty request and answer, then messages as in rendezvous_message.h, which
// are CBOR objects: a request has "op" and the operation's arguments, and gets one answer.
//
//   set key value              {}
//   get key                    {"value"}, or {} if the key does not exist
//   add key amount             {"number"}: the sum; the key holds it in decimal
//   swap key expected desired  {"value"} of the key afterwards, or `expected` if the key does not exist
//   delete key                 {"found"}
//   check keys                 {"found"}: whether there are all of them
//   wait keys                  {} as soon as there are all of them
//   count                      {"number"} of keys
//
// Threading: a thread of its own, with all signals blocked, serves all connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "gate.h"
#include "handshake.h"
#include "rendezvous_message.h"
#include "socket.h"

namespace adaptdl {

// What a RendezvousServer of this secret and its clients agree on.
handshake::Terms rendezvous_terms(const std::string& secret);

class RendezvousServer {
 public:
  // Listens on a free port of `address`, an IP address of this machine. A connection whose handshake is not complete
  // after `handshake_time` is closed; that is long, since a network that loses packets may delay it by many seconds,
  // and nothing waits for such a connection. Throws Error if the system refuses to listen.
  explicit RendezvousServer(const std::string& address,
                            std::chrono::milliseconds handshake_time = std::chrono::minutes(1));
  // Closes all connections.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  const std::string& secret() const noexcept { return secret_; }

 private:
  struct Client {
    net::Fd fd;
    std::string received, unsent;
    std::vector<std::string> awaited;  // keys of a wait that is not answered yet
  };

  Gate make_gate(const std::string& address, std::chrono::milliseconds handshake_time);
  void serve();
  // Return whether the client stays.
  bool receive(Client& client);
  static bool send_some(Client& client);

  void handle(Client& client, const nlohmann::json& request);
  void answer_waiting();
  bool has_all(const std::vector<std::string>& keys) const;

  const std::string secret_;
  std::uint16_t port_ = 0;
  Gate gate_;
  net::Fd stop_;
  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  std::thread thread_;
};

}  // namespace adaptdl
