// MachineShare is a run's share of this machine: the devices that the agent allocates to the run.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "local/base/launch_plan.h"
#include "local/devices/agent_client.h"
#include "local/devices/device_source.h"
#include "local/devices/run_size.h"

namespace adaptdl::sched {

// Return the initial request of a run with this plan to the agent, and the options of its AgentClient. `device_time`
// must outlive the client.
AgentRequest initial_request(const LaunchPlan& plan, const std::string& name, const RunSize& size);
AgentOptions agent_options(const LaunchPlan& plan, const DeviceTime& device_time,
                           const std::filesystem::path& program = AgentOptions().program);

class MachineShare final : public DeviceSource {
 public:
  // Requests devices within the bounds of `size`. `name` is the run's name for display, and `device_time` is the run's
  // device time, which the policy uses. `size` and `device_time` must outlive this object. Throws the same errors as
  // AgentClient.
  MachineShare(const LaunchPlan& plan, const std::string& name, RunSize& size, const DeviceTime& device_time);

  int fd() const noexcept override { return agent_.fd(); }
  bool take() override;
  bool has_devices() const noexcept override { return has_devices_; }
  bool told_to_wait() const noexcept override { return !has_devices_ && !reason_.empty(); }
  const std::string& reason() const noexcept override { return reason_; }
  void set_hints(nlohmann::json hints) override;
  void set_weight(double weight) override;
  void set_used(std::vector<std::string> devices, bool stays) override;

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
