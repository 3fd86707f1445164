#include "local/devices/run_size.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "local/devices/devices.h"

namespace adaptdl::sched {

RunSize::RunSize(const LaunchPlan& plan)
    : devices_(plan.devices),
      share_devices_(plan.share_devices),
      min_(plan.min_replicas),
      max_(plan.replicas),
      fixed_(!plan.elastic),
      start_(plan.elastic ? plan.start_replicas : std::nullopt) {}

std::optional<std::string> RunSize::resize(int min, int max) {
  if (!devices_.empty() && !share_devices_ && static_cast<std::size_t>(min) > devices_.size()) {
    return fmt::format("{0} replicas need {0} devices, but only {1} may be used: {2}", min, devices_.size(),
                       fmt::join(devices_, ", "));
  }
  min_ = min;
  max_ = max;
  fixed_ = false;
  start_.reset();
  by_user_ = true;
  answered_ = false;
  return std::nullopt;
}

void RunSize::allocate(std::vector<std::string> devices) {
  const auto count = static_cast<int>(devices.size());
  allocated_ = std::move(devices);
  by_user_ = !answered_;
  answered_ = answered_ || (min_ <= count && count <= max_);
}

int RunSize::max_wanted() const noexcept {
  const int max_replicas = start_ ? std::clamp(*start_, min_, max_) : max_;
  return preferred_ ? std::clamp(*preferred_, min_, max_replicas) : max_replicas;
}

std::optional<int> RunSize::preferred() const noexcept {
  return preferred_ ? std::optional(max_wanted()) : std::nullopt;
}

MembershipTarget RunSize::target() const {
  MembershipTarget target{.devices = {}, .min = min_, .by_user = by_user_};
  const auto wanted = static_cast<std::size_t>(max_wanted());
  if (allocated_) {
    target.devices = *allocated_;
    target.devices.resize(std::min(wanted, target.devices.size()));
  } else if (devices_.empty()) {
    target.devices.assign(wanted, "");
  } else {
    const int count = share_devices_ ? max_wanted() : std::min(max_wanted(), static_cast<int>(devices_.size()));
    target.devices = assign_devices(devices_, count, share_devices_);
  }
  return target;
}

}  // namespace adaptdl::sched
