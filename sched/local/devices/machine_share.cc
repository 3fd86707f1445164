#include "local/devices/machine_share.h"

#include <algorithm>
#include <utility>

namespace adaptdl::sched {

AgentRequest initial_request(const LaunchPlan& plan, const std::string& name, const RunSize& size) {
  return {.name = name,
          .min = size.min(),
          .max = size.max_wanted(),
          .devices = plan.devices,
          .kind = plan.device_kind == DeviceKind::kGpu ? "gpu" : "cpu",
          .pinned = size.fixed(),
          .preferred_count = size.preferred()};
}

AgentOptions agent_options(const LaunchPlan& plan, const DeviceTime& device_time,
                           const std::filesystem::path& program) {
  AgentOptions options;
  options.program = program;
  options.device_time = &device_time;
  if (plan.fairness) options.fairness = *plan.fairness;
  return options;
}

MachineShare::MachineShare(const LaunchPlan& plan, const std::string& name, RunSize& size,
                           const DeviceTime& device_time)
    : size_(size),
      request_(initial_request(plan, name, size)),
      said_(request_),
      agent_(request_, agent_options(plan, device_time)) {}

bool MachineShare::take() {
  auto allocation = agent_.take();
  if (!allocation) return false;
  reason_ = std::move(allocation->reason);
  if (!allocation->devices.empty()) {
    has_devices_ = true;
    size_.allocate(std::move(allocation->devices));
  }
  return true;
}

void MachineShare::set_hints(nlohmann::json hints) {
  request_.hints = std::move(hints);
  say();
}

void MachineShare::set_used(std::vector<std::string> devices, bool stays) {
  std::ranges::sort(devices);
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  request_.held = std::move(devices);
  request_.pinned = stays || size_.fixed();
  say();
}

void MachineShare::set_weight(double weight) {
  request_.weight = weight;
  say();
}

void MachineShare::say() {
  request_.min = size_.min();
  request_.max = size_.max_wanted();
  request_.preferred_count = size_.preferred();
  if (request_ == said_) return;
  said_ = request_;
  agent_.update(request_);
}

}  // namespace adaptdl::sched
