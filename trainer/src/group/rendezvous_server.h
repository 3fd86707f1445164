// The key-value server of a process group. It stores the addresses at which the replicas' backends find each other.
//
// LibTorch's own server, TCPStore, listens on all interfaces, answers any client, and allocates as much memory as a
// message specifies. This server listens on one address, drops clients that do not prove that they have its secret, and
// limits messages to kMaxMessage.
//
// Protocol: a handshake (handshake.h) with an empty request and answer, followed by messages (rendezvous_message.h)
// that are CBOR objects. A request contains "op" and the operation's arguments. Each request receives one answer:
//
//   set key value              {}
//   get key                    {"value"}, or {} if the key does not exist
//   add key amount             {"number"}: the sum, which is stored in decimal
//   swap key expected desired  {"value"} of the key afterwards, or `expected` if the key does not exist
//   delete key                 {"found"}
//   check keys                 {"found"}: whether all of them exist
//   wait keys                  {} as soon as all of them exist
//   count                      {"number"} of keys
//
// Threading: the server's own thread, in which all signals are blocked, handles all connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "group/rendezvous_message.h"
#include "protocol/gate.h"
#include "protocol/handshake.h"

namespace adaptdl {

// Returns the handshake terms for a RendezvousServer with this secret and for its clients.
handshake::Terms rendezvous_terms(const std::string& secret);

class RendezvousServer {
 public:
  // Listens on a free port of `address`, an IP address of this machine. A connection is closed if its handshake is not
  // complete after `handshake_time`. The default is long, because a lossy network may delay a handshake by many
  // seconds, and no caller waits for the connection. Throws Error if the server cannot listen.
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
    Fd fd;
    std::string received, unsent;
    std::vector<std::string> awaited;  // keys of an unanswered wait
  };

  Gate make_gate(const std::string& address, std::chrono::milliseconds handshake_time);
  void serve();
  // These return false if the client must be dropped.
  bool receive(Client& client);
  static bool send_some(Client& client);

  void handle(Client& client, const nlohmann::json& request);
  void answer_waiting();
  bool has_all(const std::vector<std::string>& keys) const;

  const std::string secret_;
  std::uint16_t port_ = 0;
  Gate gate_;
  Fd stop_;
  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  std::thread thread_;
};

}  // namespace adaptdl
