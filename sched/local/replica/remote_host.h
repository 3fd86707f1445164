// RemoteHost runs a job's replicas on other nodes, each through the replica server of its device.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "local/replica/remote_checkpoints.h"
#include "local/replica/replica_host.h"

namespace adaptdl::sched {

class RemoteReplica;

// ReplicaLinks connects a RemoteHost to the replica servers. Each device has one server, from when the device is
// connected until it is lost.
class ReplicaLinks {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // Called when a device is connected. Other nodes reach the replicas on the device at `address`.
    virtual void connected(const std::string& device, const std::string& address) = 0;
    virtual void received(const std::string& device, const nlohmann::json& message) = 0;
    // Called when a device is lost: no process runs on it any longer, and it may be connected again later. `why` is a
    // clause such as "node 7 has died".
    virtual void lost(const std::string& device, const std::string& why) = 0;
  };

  virtual ~ReplicaLinks() = default;
  // Sends a message to a connected device's server. Does not block.
  virtual void send(const std::string& device, const nlohmann::json& message) = 0;
  // Adds to `polled` the descriptors that the caller must poll. If `with_output` is false, the caller accepts no
  // replica output for now.
  virtual void add_to(std::vector<pollfd>& polled, bool with_output) const = 0;
  // Passes to `listener` all events that have arrived since the last call.
  virtual void receive(Listener& listener) = 0;
};

class RemoteHost final : public ReplicaHost, private ReplicaLinks::Listener {
 public:
  // How long free_port() waits for a node's answer.
  static constexpr std::chrono::milliseconds kPortWait = std::chrono::seconds(10);

  // The plan, the observer and the links must outlive the host.
  RemoteHost(const LaunchPlan& plan, LaunchObserver& observer, ReplicaLinks& links);
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  // Returns the connected devices, sorted by name.
  std::vector<std::string> devices() const;

  // Returns an empty address for a device that is not connected.
  std::string address(const std::string& device) const override;
  // Also throws Error if the device is not connected or its node does not answer.
  std::uint16_t free_port(const std::string& device) override;
  void begin() override;
  // Throws Error if the device is not connected. If its node cannot start the replica, the replica ends as a failure.
  std::unique_ptr<Replica> start(int number, const ReplicaPlace& place, Replica::OnReport on_report) override;
  void add_to(std::vector<pollfd>& polled, bool with_output) const override { links_.add_to(polled, with_output); }
  std::chrono::milliseconds wait_limit() const override { return std::chrono::milliseconds(100); }
  void read() override;
  // Does nothing: the replica servers end the processes that replicas leave behind.
  void tick() override {}
  bool has_last_checkpoint() const override { return !checkpoints_ || checkpoints_->has_last(); }
  void kill_all() override;

 private:
  friend class RemoteReplica;
  struct Device {
    std::string address;
    std::optional<std::uint16_t> port;  // a free port, according to the device's node
  };
  struct Event {
    std::string device;
    nlohmann::json message;  // null: the device was lost
    std::string why;         // why the device was lost
  };

  void send_start(const std::string& device, nlohmann::json start, bool joins);
  bool drop_start(const std::string& device, int number);
  bool is_queued(const std::string& device, int number) const;
  void localize(const std::string& device, nlohmann::json& report) const;

  void connected(const std::string& device, const std::string& address) override;
  void received(const std::string& device, const nlohmann::json& message) override;
  void lost(const std::string& device, const std::string& why) override;

  const LaunchPlan& plan_;
  LaunchObserver& observer_;
  ReplicaLinks& links_;
  std::optional<RemoteCheckpoints> checkpoints_;  // nullopt: the nodes share the directory, or nothing is saved
  std::map<std::string, Device> devices_;
  std::deque<Event> events_;              // for read()
  std::vector<RemoteReplica*> replicas_;  // all existing replicas, in the order of their start
  std::size_t ended_ = 0;                 // number of replicas of this start that have ended
};

}  // namespace adaptdl::sched
