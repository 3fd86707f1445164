// A run's part in the sharing of this machine: the devices that the runs of a user leave to it, and those it uses.
//
// What the agent allocates goes into the run's size, which the replicas follow. What they use is said before a process
// is started on it and until the last one on it is gone, so that no device has two users at any time.
//
// Threading: the launcher's thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "local/agent_client.h"
#include "local/launch_plan.h"
#include "local/run_size.h"

namespace adaptdl::sched {

class MachineShare {
 public:
  // Asks for devices within the bounds of `size`. `name`: the run's, for people. `device_time`: the run's, for the
  // policy. Both references must outlive this. Throws Error as AgentClient does.
  MachineShare(const LaunchPlan& plan, const std::string& name, RunSize& size, const DeviceTime& device_time);

  // Readable when take() has something to do.
  int fd() const noexcept { return agent_.fd(); }
  // Lets the size follow the newest allocation. Returns whether there was one.
  bool take();

  // Whether it was left any devices yet.
  bool has_devices() const noexcept { return has_devices_; }
  // Whether it was told to wait for others.
  bool told_to_wait() const noexcept { return !has_devices_ && !reason_.empty(); }
  // Of what was allocated last, one clause; empty: nothing was.
  const std::string& reason() const noexcept { return reason_; }

  // The following functions also send the bounds of the size, and how many replicas it prefers.
  // What the program says of itself, for the policy.
  void set_hints(nlohmann::json hints);
  // How much its speedup counts beside that of others.
  void set_weight(double weight);
  // These devices are in use, or are about to be, and no others. `stays`: the run cannot let go of any of them.
  void set_used(std::vector<std::string> devices, bool stays);

 private:
  void say();

  RunSize& size_;
  AgentRequest request_;
  AgentRequest said_;
  AgentClient agent_;
  bool has_devices_ = false;
  std::string reason_;
};

}  // namespace adaptdl::sched
