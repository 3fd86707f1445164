// MachineShare is a run's share of this machine: the devices that the agent allocates to the run.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <string>

#include "local/devices/agent_share.h"

namespace adaptdl::sched {

class MachineShare final : public AgentShare {
 public:
  // Requests the plan's devices. The parameters and errors are those of AgentShare.
  MachineShare(const LaunchPlan& plan, const std::string& name, RunSize& size, const DeviceTime& device_time);

  int fd() const noexcept override { return agent().fd(); }
  bool take() override;
  bool has_devices() const noexcept override { return has_devices_; }
  bool must_wait() const noexcept override { return !has_devices_ && !reason_.empty(); }
  const std::string& reason() const noexcept override { return reason_; }

 private:
  bool has_devices_ = false;
  std::string reason_;
};

}  // namespace adaptdl::sched
