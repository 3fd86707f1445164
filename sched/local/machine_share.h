// MachineShare is a run's part in the sharing of this machine: the devices that it may use, and those that it uses.
//
// The devices that the agent allocates go into the run's size, which the replicas follow. A device is reported as used
// before a process is started on it and until the last process on it is gone, so that it never has two users.
//
// Threading: only the launcher's thread uses it.
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
  // Asks for devices within the bounds of `size`. `name` is the run's name for display, and `device_time` is the run's,
  // for the policy. `size` and `device_time` must outlive this object. Throws Error as AgentClient does.
  MachineShare(const LaunchPlan& plan, const std::string& name, RunSize& size, const DeviceTime& device_time);

  // Readable when take() has something to do.
  int fd() const noexcept { return agent_.fd(); }
  // Sets the size to the newest allocation. Returns whether there was one.
  bool take();

  // Returns whether it was allocated any devices yet.
  bool has_devices() const noexcept { return has_devices_; }
  // Returns whether the agent makes it wait for other runs.
  bool told_to_wait() const noexcept { return !has_devices_ && !reason_.empty(); }
  // The reason for the last allocation, in one clause; empty before the first one.
  const std::string& reason() const noexcept { return reason_; }

  // The following functions also send the bounds of the size, and how many replicas the run prefers. set_hints() sends
  // what the program reports about itself, for the policy.
  void set_hints(nlohmann::json hints);
  // Sets how much its speedup counts relative to that of other runs.
  void set_weight(double weight);
  // Reports that only these devices are in use, or about to be. If `stays`, the run cannot give up any of them.
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
