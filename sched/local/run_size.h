// How many replicas a run may have on this machine, and on which devices.
//
// Threading: the launcher's thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "local/launch_plan.h"
#include "local/membership.h"

namespace adaptdl::sched {

class RunSize {
 public:
  explicit RunSize(const LaunchPlan& plan);

  // A user asks for other bounds, 1 <= min <= max. Returns why that cannot be, if it cannot; nothing is changed then.
  std::optional<std::string> resize(int min, int max);
  // It may have these devices, and no others, until it is given others; they are at least `min()`.
  void allocate(std::vector<std::string> devices);

  int min() const noexcept { return min_; }
  int max() const noexcept { return max_; }
  // What it should have now: as much as it may.
  MembershipTarget target() const;

 private:
  std::vector<std::string> devices_;  // that there are for it; empty: replicas need none
  bool share_devices_;
  int min_, max_;
  bool by_user_ = false;
  std::optional<std::vector<std::string>> allocated_;
};

}  // namespace adaptdl::sched
