// ClusterRelay gives a run access to the devices of a cluster through a driver, which makes no allocation decisions.
//
// The driver is the parent process. It sends JSON objects, one per line:
//   {"is": "nodes", "nodes": [{"id": ID, "address": IP, "devices": N, "leaving": BOOL}, ...]}   all, on a change
//   {"is": "connected", "device": D} | {"is": "lost", "device": D, "why": CLAUSE}
//   {"is": "message", "device": D, "message": OBJECT}       from the device's replica server (see replica_wire.h)
// and this process sends
//   {"do": "open", "device": D, "node": ID} | {"do": "close", "device": D}    starts, or ends, a replica server
//   {"do": "send", "device": D, "message": OBJECT}
//   {"do": "want", "devices": N}                            how many devices the run could use, for an autoscaler
// A device is named NODE/INDEX. The driver answers each "open" with "connected" or "lost". After "lost", it sends
// nothing about the device until the device is opened again.
//
// The agent (agent.h) decides which devices the run should have, so that runs whose launchers are on the same machine
// share the cluster. The run gives up the devices of nodes that are leaving. While a program that must be restarted to
// use more nodes is running, the devices of nodes that have just joined are withheld from the agent until there are
// enough for all replicas or Relay::rescale_timeout has passed, so that the run restarts only once for all nodes that
// join.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "local/base/line_channel.h"
#include "local/devices/agent_share.h"
#include "local/replica/remote_host.h"

namespace adaptdl::sched {

class ClusterRelay final : public AgentShare, public ReplicaLinks {
 public:
  // The parameters and errors are those of AgentShare. Also throws Error if the descriptors of the plan's relay are
  // invalid.
  ClusterRelay(const LaunchPlan& plan, RunSize& size, const DeviceTime& device_time,
               const std::filesystem::path& program = AgentOptions().program);

  int fd() const noexcept override { return watch_.get(); }
  // Throws Error if the driver has ended.
  bool take() override;
  bool has_devices() const noexcept override;
  bool must_wait() const noexcept override { return !has_devices(); }
  const std::string& reason() const noexcept override { return reason_; }

  void send(const std::string& device, const nlohmann::json& message) override;
  void add_to(std::vector<pollfd>& polled, bool with_output) const override;
  void receive(Listener& listener) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Node {
    std::string address;
    int devices = 0;
    bool leaving = false;
  };
  enum class Link { kOpening, kConnected };

  void pump();
  void take_message(const nlohmann::json& message);
  void admit_nodes();
  std::vector<std::string> usable_devices() const;
  void complete(AgentRequest& request) override;
  void open_and_close();
  bool allocate();

  const std::chrono::milliseconds rescale_timeout_;
  LineChannel channel_;
  Fd watch_;                                        // readable when the channel or the agent client is
  std::map<std::string, Node> nodes_;               // by node id
  std::set<std::string> admitted_;                  // ids of nodes whose devices are not withheld from the agent
  Clock::time_point withheld_since_{};              // since when devices have been withheld
  std::map<std::string, Link> links_;               // by device
  std::map<std::string, Clock::time_point> retry_;  // when each lost device may be opened again
  std::deque<nlohmann::json> events_;               // for receive()
  std::vector<std::string> wanted_;                 // devices that the agent has allocated
  std::vector<std::string> allocated_;              // devices that were passed to the run's size
  std::string reason_ = "no node of the cluster has a free device";
  int requested_ = 0;      // number of devices requested from the autoscaler
  bool answered_ = false;  // whether the agent has sent an allocation
  const Clock::time_point began_ = Clock::now();
  Clock::time_point first_connected_{};
};

}  // namespace adaptdl::sched
