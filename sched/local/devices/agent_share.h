// AgentShare is a run's share of the devices that an agent allocates, and the request for it.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "local/base/launch_plan.h"
#include "local/devices/agent_client.h"
#include "local/devices/device_source.h"
#include "local/devices/run_size.h"

namespace adaptdl::sched {

class AgentShare : public DeviceSource {
 public:
  void set_hints(nlohmann::json hints) final;
  void set_weight(double weight) final;
  void set_used(std::vector<std::string> devices, bool stays) final;

 protected:
  // Requests `devices` for a run of this plan, within the bounds of `size`. `name` is the run's name for display,
  // `device_time` is the run's device time, which the policy uses, and `program` is AgentOptions::program. `size` and
  // `device_time` must outlive this object. Throws the errors of AgentClient.
  AgentShare(const LaunchPlan& plan, const std::string& name, RunSize& size, const DeviceTime& device_time,
             std::vector<std::string> devices, const std::filesystem::path& program = AgentOptions().program);

  // Updates the request, and sends it to the agent if it has changed.
  void update();
  // Sets the fields of the request that only the derived class knows.
  virtual void complete(AgentRequest& request);

  const AgentRequest& request() const noexcept { return request_; }
  RunSize& size() const noexcept { return size_; }
  AgentClient& agent() noexcept { return agent_; }
  const AgentClient& agent() const noexcept { return agent_; }

 private:
  RunSize& size_;
  AgentRequest request_;
  AgentRequest sent_;
  AgentClient agent_;
};

}  // namespace adaptdl::sched
