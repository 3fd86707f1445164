#include "local/devices/machine_share.h"

#include <utility>

namespace adaptdl::sched {

MachineShare::MachineShare(const LaunchPlan& plan, const std::string& name, RunSize& size,
                           const DeviceTime& device_time)
    : AgentShare(plan, name, size, device_time, plan.devices) {}

bool MachineShare::take() {
  auto allocation = agent().take();
  if (!allocation) return false;
  reason_ = std::move(allocation->reason);
  if (!allocation->devices.empty()) {
    has_devices_ = true;
    size().allocate(std::move(allocation->devices));
  }
  return true;
}

}  // namespace adaptdl::sched
