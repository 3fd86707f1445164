// The key-value store through which the members of a process group find each other. It implements LibTorch's store
// interface with a RendezvousServer.
//
// Threading: any thread may call the operations. While one operation waits, operations in other threads are blocked.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "group/rendezvous_server.h"

namespace adaptdl {

// A server's address and secret.
struct RendezvousPlace {
  std::string host;
  std::uint16_t port = 0;
  std::string secret;
};

class RendezvousStore final : public c10d::Store {
 public:
  using Value = std::vector<std::uint8_t>;

  // Connects at the first operation. The store shares ownership of `server`, which is null except on rank 0. Operations
  // throw CollectiveError if the server cannot be reached or does not answer within `timeout`.
  RendezvousStore(RendezvousPlace place, std::chrono::milliseconds timeout, std::shared_ptr<RendezvousServer> server);

  const std::string& secret() const noexcept { return place_.secret; }

  void set(const std::string& key, const Value& value) override;
  Value compareSet(const std::string& key, const Value& expected, const Value& desired) override;
  // Waits up to the timeout until the key exists.
  Value get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  // Overrides a method that Store has had since LibTorch 2.8. Returns the same store with a separate connection.
  c10::intrusive_ptr<c10d::Store> clone();

 private:
  nlohmann::json ask(const nlohmann::json& request, std::chrono::milliseconds timeout);
  void connect(net::Clock::time_point deadline);
  bool try_connect(net::Clock::time_point deadline, std::string& why);
  void send(const std::string& message, net::Clock::time_point deadline);
  std::string receive(net::Clock::time_point deadline);

  const RendezvousPlace place_;
  const std::shared_ptr<RendezvousServer> server_;
  std::mutex mutex_;
  Fd fd_;
  std::string received_;
};

}  // namespace adaptdl
