#include "local/devices/agent_share.h"

#include <algorithm>
#include <utility>

namespace adaptdl::sched {
namespace {

AgentRequest initial_request(const LaunchPlan& plan, const std::string& name, const RunSize& size,
                             std::vector<std::string> devices) {
  return {.name = name,
          .min = size.min(),
          .max = size.max_wanted(),
          .devices = std::move(devices),
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

}  // namespace

AgentShare::AgentShare(const LaunchPlan& plan, const std::string& name, RunSize& size, const DeviceTime& device_time,
                       std::vector<std::string> devices, const std::filesystem::path& program)
    : size_(size),
      request_(initial_request(plan, name, size, std::move(devices))),
      sent_(request_),
      agent_(request_, agent_options(plan, device_time, program)) {}

void AgentShare::set_hints(nlohmann::json hints) {
  request_.hints = std::move(hints);
  update();
}

void AgentShare::set_weight(double weight) {
  request_.weight = weight;
  update();
}

void AgentShare::set_used(std::vector<std::string> devices, bool stays) {
  std::ranges::sort(devices);
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  request_.held = std::move(devices);
  request_.pinned = stays || size_.fixed();
  update();
}

void AgentShare::update() {
  request_.min = size_.min();
  request_.max = size_.max_wanted();
  request_.preferred_count = size_.preferred();
  complete(request_);
  if (request_ == sent_) return;
  sent_ = request_;
  agent_.update(request_);
}

void AgentShare::complete(AgentRequest&) {}

}  // namespace adaptdl::sched
